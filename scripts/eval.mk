# eval.mk - the measurements of `make eval`. Each is a target of its own, so that they run side by side and an
# interrupted `make eval` goes on where it was. A newer program, or other pins, measures anew.
#
#   $(OUT)/ppl-TOKENS-TEXT.json                   perplexity: default, h2o-paper, streaming
#   $(OUT)/recall-TOKENS-TEXT-guided-KEYS.json    keys found: default, with the question in mind
#   $(OUT)/recall-TOKENS-TEXT-plain-KEYS.json     keys found: h2o-paper, the document read as any text
#   $(OUT)/session-TOKENS-TEXT-KEYS.json          keys found when five are asked for in one session, of which the guide saw
#                                                 the first
#   $(OUT)/*.svg                                  a chart of each
#   $(OUT)/tables.md                              all of them together; printed too
#
# The Makefile gives TEXTS, the folder of the fetched texts; the user may give TEXT and the six below.
EVAL           ?= ppl recall session
PPL_TOKENS     ?= 2048 4096
RECALL_TOKENS  ?= 1000 2000 4000
SESSION_TOKENS ?= 2000
KEYS           ?= 10
OUT            ?= build/eval

H2OKV ?= build/h2okv
here  := $(dir $(lastword $(MAKEFILE_LIST)))
needs := $(H2OKV) $(here)eval.mk $(wildcard $(here)pins/*)

ifneq ($(filter-out ppl recall session,$(EVAL)),)
$(error EVAL=$(EVAL): use ppl, recall, session, or several of them)
endif

ifdef TEXT # the user's, which may be another one each time
names    := own
file_own := $(TEXT)
needs    += always
else
names := moby-dick address-1861 address-1905 address-1928
$(foreach name,$(names),$(eval file_$(name) := $(TEXTS)/$(name).txt))
endif

.PHONY: tables always
tables:

# $(call measure,ARGUMENTS): the result appears when it is whole.
define measure
@echo "h2okv: measuring $(basename $(notdir $@))" >&2
@mkdir -p '$(OUT)'
@'$(H2OKV)' eval $(1) -t 1 -q --json --svg '$(@:.json=.svg)' >'$@.part' || { code=$$?; rm -f '$@.part'; exit $$code; }
@mv '$@.part' '$@'
endef

ppl_rows    := --policy default,h2o-paper,streaming --budget 20%,10%
guided_rows := --policy default --guide auto --budget 20%,10%,5%
plain_rows  := --policy h2o-paper --guide off --budget 20%

# $(eval $(call ppl,TOKENS,TEXT)), $(eval $(call recall,TOKENS,TEXT,guided|plain))
define ppl
results += $(OUT)/ppl-$(1)-$(2).json
$(OUT)/ppl-$(1)-$(2).json: $(needs)
	$$(call measure,ppl -f '$$(file_$(2))' --tokens $(1) $$(ppl_rows))
endef

define recall
results += $(OUT)/recall-$(1)-$(2)-$(3)-$(KEYS).json
$(OUT)/recall-$(1)-$(2)-$(3)-$(KEYS).json: $(needs)
	$$(call measure,recall -f '$$(file_$(2))' --tokens $(1) --keys $(KEYS) $$($(3)_rows))
endef

# $(eval $(call session,TOKENS,TEXT))
define session
results += $(OUT)/session-$(1)-$(2)-$(KEYS).json
$(OUT)/session-$(1)-$(2)-$(KEYS).json: $(needs)
	$$(call measure,recall -f '$$(file_$(2))' --tokens $(1) --keys $(KEYS) --questions 5 $$(guided_rows))
endef

results :=
$(foreach part,$(filter ppl,$(EVAL)),$(foreach n,$(PPL_TOKENS),$(foreach text,$(names),\
    $(eval $(call ppl,$(n),$(text))))))
$(foreach part,$(filter recall,$(EVAL)),$(foreach n,$(RECALL_TOKENS),$(foreach text,$(names),\
    $(foreach how,guided plain,$(eval $(call recall,$(n),$(text),$(how)))))))
$(foreach part,$(filter session,$(EVAL)),$(foreach n,$(SESSION_TOKENS),$(foreach text,$(names),\
    $(eval $(call session,$(n),$(text))))))

tables: $(results)
	@python3 $(here)eval_tables.py $(results) >'$(OUT)/tables.md'
	@cat '$(OUT)/tables.md'
