"""clients.py - h2okv serve as its users meet it: the official openai client and curl against the program and the model.

    H2OKV=build/h2okv PYTHONPATH=<openai client> python3 clients.py [soak]

Run by ctest (cli.serve_clients), the soak alone by `make soak`. No assertion depends on speed; every wait has an end.
"""
import concurrent.futures
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

import openai

PROGRAM = os.environ["H2OKV"]
WAIT = 60  # s, for what comes in any case
LESSON = "A heavy hitter is a token that attention keeps coming back to; a cache of fixed size keeps those. "


class Server:
    """The program, on a port of its own; with one thread, for ggml's crawl beside other programs."""

    def __init__(self, *options, environment=None):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--port", "0", "--threads", "1", *options], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})
        line = self.process.stdout.readline()
        if "http://" not in line:
            raise RuntimeError(f"it said {line!r}: {self.process.stderr.read()}")
        self.url = line.split()[2].rstrip(",")
        self.port = int(self.url.rsplit(":", 1)[1])
        self.model = line.split("model ")[1].strip()
        self.errors, self.clients = [], {}
        threading.Thread(target=lambda: self.errors.extend(self.process.stderr), daemon=True).start()

    def client(self, key="none"):
        """One for all threads, which keeps its connections."""
        if key not in self.clients:
            self.clients[key] = openai.OpenAI(base_url=self.url + "/v1", api_key=key, max_retries=0, timeout=WAIT)
        return self.clients[key]

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        connection.request("GET", path)
        text = connection.getresponse().read().decode()
        connection.close()
        return text

    def metric(self, name):
        for line in self.get("/metrics").splitlines():
            if line.startswith(f"h2okv_{name} "):
                return float(line.split()[1])
        raise KeyError(name)

    def until(self, what, true):
        """Waits until a metric is as it should be."""
        end = time.monotonic() + WAIT
        while not true(self.metric(what)):
            if time.monotonic() > end:
                raise AssertionError(f"{what} is {self.metric(what)} after {WAIT} s")
            time.sleep(0.02)

    def memory(self):
        """Bytes of the process's own, in memory or swapped out."""
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as status:
            lines = dict(line.split(":", 1) for line in status)
        return sum(int(lines[key].split()[0]) * 1024 for key in ("RssAnon", "VmSwap"))

    def stop(self):
        """The exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(WAIT)
        self.process.stdout.close()
        return code


def chat(server, text, **more):
    options = {"temperature": 0, "max_tokens": 16, **more}
    messages = text if isinstance(text, list) else [{"role": "user", "content": text}]
    return server.client().chat.completions.create(model=server.model, messages=messages, **options)


class Serve(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--slots", "4", "--budget", "256", "--prompt-budget", "512")

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        assert code == 0, f"exit code {code}: {cls.server.errors}"


class TheClient(Serve):
    """The official client, and what it makes of our answers."""

    def test_models(self):
        client = self.server.client()
        self.assertEqual([m.id for m in client.models.list()], [self.server.model])
        self.assertEqual(client.models.retrieve(self.server.model).owned_by, "h2okv")
        with self.assertRaises(openai.NotFoundError):
            client.models.retrieve("gpt-4")

    def test_chat(self):
        answer = chat(self.server, "What is the capital of France?", max_tokens=64)
        self.assertIn("Paris", answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertFalse(hasattr(answer.usage, "evicted_tokens"))
        again = chat(self.server, "What is the capital of France?", max_tokens=64)
        self.assertEqual(again.choices[0].message.content, answer.choices[0].message.content)
        self.assertGreater(again.usage.prompt_tokens_details.cached_tokens, 0)

    def test_stream_is_the_same_in_pieces(self):
        whole = chat(self.server, "Count from one to ten.", max_tokens=24)
        chunks = list(chat(self.server, "Count from one to ten.", max_tokens=24, stream=True,
                           stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(len({c.id for c in chunks}), 1)
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices][-1], whole.choices[0].finish_reason)
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertTrue(all(c.usage is None for c in chunks[:-1]))

    def test_completion(self):
        client = self.server.client()
        options = {"model": self.server.model, "prompt": "One, two, three, four,", "max_tokens": 8, "temperature": 0}
        whole = client.completions.create(**options, logprobs=3)
        chosen = whole.choices[0]
        self.assertEqual("".join(chosen.logprobs.tokens), chosen.text)
        self.assertEqual(len(chosen.logprobs.token_logprobs), 8)
        self.assertEqual(chosen.logprobs.text_offset[0], 0)
        for token, logprob, likely in zip(chosen.logprobs.tokens, chosen.logprobs.token_logprobs,
                                          chosen.logprobs.top_logprobs):
            self.assertEqual(len(likely), 3)
            self.assertAlmostEqual(likely[token], logprob)
            self.assertAlmostEqual(max(likely.values()), logprob)  # temperature 0
        pieces = client.completions.create(**options, stream=True)
        self.assertEqual("".join(c.choices[0].text for c in pieces), chosen.text)

    def test_logprobs_of_a_chat(self):
        answer = chat(self.server, "Name a colour.", logprobs=True, top_logprobs=2, max_tokens=5)
        tokens = answer.choices[0].logprobs.content
        spelled = b"".join(bytes(t.bytes) for t in tokens).decode()
        self.assertTrue(spelled.startswith(answer.choices[0].message.content))
        for t in tokens:
            self.assertLessEqual(t.logprob, 0)
            self.assertEqual([x.token for x in t.top_logprobs][0], t.token)

    def test_seeds(self):
        def drawn(seed):
            return chat(self.server, "Tell a story.", temperature=1.5, seed=seed).choices[0].message.content

        drawn(1)  # from now on the prompt is read in the same way: all but its last token are reused
        self.assertEqual(drawn(7), drawn(7))
        self.assertGreater(len({drawn(i) for i in range(4)}), 1)

    def test_stop_strings(self):
        first = chat(self.server, "Count from one to ten.", max_tokens=24).choices[0].message.content
        stop = first[5:9]
        for stream in (False, True):
            answer = chat(self.server, "Count from one to ten.", max_tokens=24, stop=[stop, "never said"], stream=stream)
            if stream:
                chunks = [c for c in answer if c.choices]
                text = "".join(c.choices[0].delta.content or "" for c in chunks)
                reason = chunks[-1].choices[0].finish_reason
            else:
                text, reason = answer.choices[0].message.content, answer.choices[0].finish_reason
            self.assertEqual(text, first[:first.index(stop)])
            self.assertEqual(reason, "stop")

    def test_json_and_grammars(self):
        answer = chat(self.server, "A JSON object with a name and an age.", max_tokens=100,
                      response_format={"type": "json_object"}, temperature=0.7, seed=1)
        if answer.choices[0].finish_reason == "stop":
            self.assertIsInstance(json.loads(answer.choices[0].message.content), dict)
        else:
            self.assertTrue(answer.choices[0].message.content.startswith("{"))
        answer = chat(self.server, "Yes or no?", extra_body={"grammar": 'root ::= "yes" | "no"'})
        self.assertIn(answer.choices[0].message.content, ("yes", "no"))
        with self.assertRaises(openai.BadRequestError) as raised:
            chat(self.server, "Yes or no?", extra_body={"grammar": "root ::= ("})
        self.assertEqual(raised.exception.param, "grammar")

    def test_characters_of_many_bytes_stay_whole(self):
        grammar = 'root ::= ("\u00e9" | "\u20ac" | "\U0001f600" | "\u4e2d"){12}'
        chunks = chat(self.server, "Write symbols.", stream=True, temperature=2, seed=3, max_tokens=200,
                      extra_body={"grammar": grammar})
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(len(text), 12)
        self.assertLessEqual(set(text), set("\u00e9\u20ac\U0001f600\u4e2d"))

    def test_what_is_refused_names_the_field(self):
        cases = [("max_tokens", {"max_tokens": -1}), ("n", {"n": 2}), ("temperature", {"temperature": 9}),
                 ("tools", {"tools": [{"type": "function", "function": {"name": "f"}}]}),
                 ("response_format", {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}),
                 ("budget", {"extra_body": {"budget": 513}}), ("policy", {"extra_body": {"policy": "window"}}),
                 ("top_k", {"extra_body": {"top_k": 5}})]
        for field, more in cases:
            with self.subTest(field), self.assertRaises(openai.BadRequestError) as raised:
                chat(self.server, "Hello", **more)
            self.assertEqual(raised.exception.param, field)
            self.assertIn(field, raised.exception.message)
        with self.assertRaises(openai.NotFoundError):
            self.server.client().chat.completions.create(model="gpt-4", messages=[{"role": "user", "content": "x"}])

    def test_long_prompts_are_read_within_the_budget(self):
        text = LESSON * 20 + "The key of Bo is 48213. " + LESSON * 10 + "\n\nWhat is the key of Bo?"
        answer = chat(self.server, text)
        self.assertGreater(answer.usage.prompt_tokens, 600)
        self.assertGreater(answer.usage.evicted_tokens, 0)

    def test_several_turns_read_only_what_is_new(self):
        turns = [{"role": "system", "content": "You answer briefly."}, {"role": "user", "content": "Name a fruit."}]
        first = chat(self.server, turns)
        turns += [first.choices[0].message, {"role": "user", "content": "Another one."}]
        second = chat(self.server, turns)
        self.assertGreater(second.usage.prompt_tokens_details.cached_tokens, first.usage.prompt_tokens)


class Many(Serve):
    """Sixteen clients on four slots."""

    QUESTIONS = [f"Write a sentence about the number {i}." for i in range(16)]

    def ask(self, question):
        """The tokens of the answer, each with its two likeliest."""
        answer = chat(self.server, question, max_tokens=16, logprobs=True, top_logprobs=2)
        return answer.choices[0].logprobs.content

    def test_answers_in_a_batch_are_those_alone(self):
        """Some processors multiply one row in another way than several, so that logits are equal only nearly: there the
        first token that differs must have been as good as a tie."""
        alone = [self.ask(q) for q in self.QUESTIONS]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            together = list(pool.map(self.ask, self.QUESTIONS))
        alike, gaps = 0, []
        for one, other in zip(alone, together):
            differ = [i for i, (a, b) in enumerate(zip(one, other)) if a.token != b.token]
            if not differ:
                self.assertEqual(len(one), len(other))
                alike += 1
                continue
            for tokens in (one, other):
                likeliest, next_one = tokens[differ[0]].top_logprobs
                gaps.append(likeliest.logprob - next_one.logprob)
                self.assertEqual({likeliest.token, next_one.token}, {one[differ[0]].token, other[differ[0]].token})
        print(f"{alike} of {len(alone)} answers alike; gaps of those that differ: {[f'{g:.3f}' for g in gaps]}")
        self.assertTrue(all(gap < 0.3 for gap in gaps))
        self.assertGreaterEqual(alike, len(alone) // 2)

    def test_who_leaves_frees_the_slot_and_touches_nobody(self):
        before = self.server.metric("requests_left_total")
        alone = chat(self.server, "Count from one to a hundred.", max_tokens=60).choices[0].message.content
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            stays = pool.submit(chat, self.server, "Count from one to a hundred.", max_tokens=60)
            for i in range(3):  # while it writes, and while it reads a long prompt
                stream = chat(self.server, "Tell a story.", max_tokens=5000, stream=True)
                next(iter(stream))
                stream.close()
                leaves = http.client.HTTPConnection("127.0.0.1", self.server.port)
                leaves.request("POST", "/v1/completions", json.dumps({"prompt": f"{i} " + LESSON * 200}),
                               {"Content-Type": "application/json"})
                time.sleep(0.1)
                leaves.close()
            self.assertEqual(stays.result().choices[0].message.content, alone)
        self.server.until("requests_left_total", lambda n: n >= before + 6)
        self.server.until("slots_busy", lambda n: n == 0)

    def test_the_live_view_while_others_write(self):
        stream = chat(self.server, "Tell a story.", max_tokens=300, stream=True)
        next(iter(stream))
        for slot in range(4):
            view = json.loads(self.server.get(f"/live/{slot}"))
            n = len(view["text"])
            self.assertEqual((len(view["kept"]), len(view["score"]), len(view["state"])), (n, n, n))
            self.assertLessEqual(set(view["state"]), set("rhpse"))
        stream.close()
        self.server.until("slots_busy", lambda n: n == 0)


class Curl(unittest.TestCase):
    """Plain curl, keys, a full queue, and the end."""

    @staticmethod
    def curl(server, path, *more):
        command = ["curl", "--silent", "--no-buffer", "--max-time", str(WAIT), "--write-out", "\n%{http_code}", *more,
                   server.url + path]
        text, _, status = subprocess.run(command, check=True, capture_output=True, text=True).stdout.rpartition("\n")
        return int(status), text

    def post(self, server, body, *more):
        return self.curl(server, "/v1/chat/completions", "--header", "Content-Type: application/json", "--data", body, *more)

    def test_everything(self):
        server = Server("--slots", "1", "--queue", "1", environment={"H2OKV_API_KEY": "sk-test"})
        key = ("--header", "Authorization: Bearer sk-test")
        question = '{"messages":[{"role":"user","content":"Count from one to ten."}],"temperature":0,"max_tokens":12%s}'
        try:
            self.assertEqual(self.curl(server, "/health")[0], 200)
            self.assertEqual(self.post(server, question % "")[0], 401)
            with self.assertRaises(openai.AuthenticationError):
                server.client("sk-wrong").models.list()
            self.assertEqual([m.id for m in server.client("sk-test").models.list()], [server.model])
            status, text = self.post(server, question % "", *key)
            self.assertEqual(status, 200)
            content = json.loads(text)["choices"][0]["message"]["content"]
            status, text = self.post(server, question % ',"stream":true', *key)
            lines = [line[6:] for line in text.splitlines() if line]
            self.assertEqual(lines[-1], "[DONE]")
            pieces = [json.loads(line)["choices"][0]["delta"].get("content", "") for line in lines[:-1]]
            self.assertEqual("".join(pieces), content)
            for body in ("", "{:", "[]", '{"messages":"x"}', "[" * 100000, question % ',"seed":-1', question % ',"x":1',
                         '{"messages":[{"role":"user","content":"\\ud800"}]}'):
                status, text = self.post(server, body, *key)
                self.assertEqual(status, 400)
                self.assertEqual(json.loads(text)["error"]["type"], "invalid_request_error")
            self.assertEqual(self.curl(server, "/v1/chat/completions", *key)[0], 405)
            self.assertEqual(self.curl(server, "/nothing", *key)[0], 404)
            self.assertEqual(self.curl(server, "/v1/chat/completions", *key, "--data", "{}")[0], 415)
            self.full_queue_and_the_end(server, question)
        finally:
            server.process.kill()
            server.process.wait()

    def full_queue_and_the_end(self, server, question):
        client = server.client("sk-test")
        ask = {"model": server.model, "messages": [{"role": "user", "content": "Tell a story."}], "temperature": 0}
        stream = client.chat.completions.create(**ask, max_tokens=400, stream=True)
        next(iter(stream))
        waits = http.client.HTTPConnection("127.0.0.1", server.port)
        waits.request("POST", "/v1/completions", '{"prompt":"x"}',
                      {"Content-Type": "application/json", "Authorization": "Bearer sk-test"})
        while json.loads(server.get("/health"))["queue"]["length"] < 1:
            time.sleep(0.01)
        with self.assertRaises(openai.RateLimitError) as raised:
            client.chat.completions.create(**ask)
        self.assertEqual(raised.exception.code, "queue_full")
        self.assertEqual(raised.exception.response.headers["Retry-After"], "1")
        waits.close()
        server.process.send_signal(signal.SIGTERM)  # the answer at hand is still given
        reasons = [c.choices[0].finish_reason for c in stream if c.choices]
        self.assertIn(reasons[-1], ("stop", "length"))
        self.assertEqual(server.process.wait(WAIT), 0)


class TimeLimit(unittest.TestCase):
    def test_a_request_ends_with_its_time(self):
        server = Server("--slots", "1", "--time-limit", "0.5")
        try:
            with self.assertRaises(openai.APIStatusError) as raised:
                chat(server, "Tell a story.", max_tokens=100000, extra_body={"grammar": 'root ::= [a-z ]+'})
            self.assertEqual(raised.exception.status_code, 504)
            with self.assertRaises(openai.APIError) as raised:
                list(chat(server, "Tell a story.", max_tokens=100000, stream=True,
                          extra_body={"grammar": 'root ::= [a-z ]+'}))
            self.assertEqual(raised.exception.code, "time_limit")
            self.assertEqual(server.stop(), 0)
        finally:
            server.process.kill()
            server.process.wait()


class Soak(unittest.TestCase):
    """Short requests of every kind: memory does not grow by them (faults.md 73)."""

    REQUESTS = int(os.environ.get("H2OKV_SOAK", "60"))
    WARM, MOST_GROWTH = 30, 6 << 20

    def one(self, i):
        chance = random.Random(i)
        kind = i % 6
        words = f"Say {chance.randrange(10 ** chance.randrange(1, 12))}. " * (20 if i % 40 == 0 else 1)
        question = [{"role": "user", "content": words}]
        if kind == 4:
            with self.assertRaises(openai.BadRequestError):
                chat(self.server, question, n=2)
            return
        more = {3: {"logprobs": True, "top_logprobs": 5}, 5: {"response_format": {"type": "json_object"}}}.get(kind, {})
        answer = chat(self.server, question, max_tokens=3, stream=kind in (1, 2), **more)
        if kind == 1:
            self.assertTrue(list(answer)[-1].choices[0].finish_reason)
        if kind == 2:
            next(iter(answer))
            answer.close()

    def test_memory_is_flat(self):
        self.server = Server("--slots", "4", "--budget", "128")
        try:
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(self.one, range(self.WARM)))
                before = self.server.memory()
                list(pool.map(self.one, range(self.WARM, self.REQUESTS)))
            self.server.until("slots_busy", lambda n: n == 0)
            growth = self.server.memory() - before
            print(f"memory after {self.REQUESTS} requests: {growth / 1024:+.0f} KiB since the first {self.WARM}")
            self.assertLess(growth, self.MOST_GROWTH)
            self.assertEqual(self.server.stop(), 0)
        finally:
            self.server.process.kill()
            self.server.process.wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["soak"]:
        Soak.REQUESTS = int(os.environ.get("H2OKV_SOAK", "500"))
        unittest.main(argv=["clients.py", "Soak"])
    unittest.main()
