/* The page of h2okv serve: a chat, and what the cache holds of it.
 *
 *   Send -> POST /v1/chat/completions, streamed -> log        its header x-h2okv-slot names the slot
 *   meanwhile, and once behind it: GET /live/SLOT -> tokens   one at a time; only what changed is drawn
 *
 * Texts of people and of the model go into the page as textContent only. */
"use strict";

const $ = id => document.getElementById(id);
const messages = [];      /* {role, content} without the system prompt */
let slot = null;          /* of this conversation */
let stopping = null;      /* AbortController of the answer that is being written */

/* ---- The server ------------------------------------------------------------------------------------------------ */

const POLL_MS = 300;

function headers() {
  const key = $("key").value || sessionStorage.getItem("key") || "";
  const all = { "Content-Type": "application/json" };
  if (key) all.Authorization = "Bearer " + key;
  return all;
}

/* What is wrong, in the server's words. */
async function complaint(response) {
  if (response.status === 401) {
    $("locked").hidden = false;
    $("settings").open = true;
    $("key").focus();
  }
  try {
    return (await response.json()).error.message;
  } catch {
    return "the server answered " + response.status;
  }
}

function trouble(text) {
  $("trouble").textContent = text || "";
  $("trouble").hidden = !text;
}

async function greet() {
  try {
    const response = await fetch("/v1/models", { headers: headers() });
    if (!response.ok) throw new Error(await complaint(response));
    $("model").textContent = (await response.json()).data[0].id;
    trouble("");
  } catch (error) {
    $("model").textContent = "";
    trouble(error.message);
  }
}

/* ---- The conversation ------------------------------------------------------------------------------------------ */

function draw(role, text) {
  const article = document.createElement("article");
  article.className = role;
  article.setAttribute("aria-label", role === "user" ? "You" : "Answer");
  article.append(document.createTextNode(text));
  $("empty").hidden = true;
  $("log").append(article);
  return article;
}

function follow() {
  const log = $("log");
  if (log.scrollHeight - log.scrollTop - log.clientHeight < 120) log.scrollTop = log.scrollHeight;
}

function request() {
  const system = $("system").value.trim();
  const all = system ? [{ role: "system", content: system }, ...messages] : messages;
  return {
    messages: all, stream: true, stream_options: { include_usage: true }, reuse: "lossy",
    temperature: Number($("temperature").value) || 0, max_tokens: Number($("most").value) || 512,
  };
}

/* Events of a stream, as they come. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const data = text.slice(0, end).split("\n").find(line => line.startsWith("data: "));
      text = text.slice(end + 2);
      if (data && data !== "data: [DONE]") yield JSON.parse(data.slice(6));
    }
  }
}

function tellUsage(usage) {
  const parts = [usage.prompt_tokens + " read", usage.completion_tokens + " written"];
  if (usage.prompt_tokens_details?.cached_tokens) parts[0] += " (" + usage.prompt_tokens_details.cached_tokens + " reused)";
  if (usage.evicted_tokens) parts.push(usage.evicted_tokens + " evicted");
  $("usage").textContent = parts.join(", ");
}

async function stream(article) {
  const response = await fetch("/v1/chat/completions", {
    method: "POST", headers: headers(), body: JSON.stringify(request()), signal: stopping.signal,
  });
  if (!response.ok) throw new Error(await complaint(response));
  const given = response.headers.get("x-h2okv-slot");
  if (given !== null) slot = Number(given);
  let said = "";
  for await (const event of events(response.body)) {
    if (event.error) throw new Error(event.error.message);
    const piece = event.choices?.[0]?.delta?.content;
    if (piece) {
      said += piece;
      article.firstChild.appendData(piece);
      follow();
    }
    if (event.usage) tellUsage(event.usage);
  }
  return said;
}

function busy(yes) {
  $("send").disabled = yes;
  $("stop").disabled = !yes;
  $("again").disabled = yes || messages.length === 0;
  $("new").disabled = yes;
  $("log").setAttribute("aria-busy", yes);
}

/* The last message is the user's; its answer is written behind it. */
async function answer() {
  const article = draw("assistant", "");
  article.classList.add("writing");
  stopping = new AbortController();
  busy(true);
  trouble("");
  follow();
  watch();
  try {
    await stream(article);
  } catch (error) {
    if (error.name !== "AbortError") trouble(error.message);
  }
  article.classList.remove("writing");
  const said = article.textContent;
  if (said) messages.push({ role: "assistant", content: said });
  else article.remove();
  stopping = null;
  busy(false);
  look();
}

function send() {
  const text = $("say").value.trim();
  if (!text || stopping) return;
  $("say").value = "";
  if (messages.at(-1)?.role === "user") messages.pop(); /* it came to nothing */
  messages.push({ role: "user", content: text });
  draw("user", text);
  $("log").scrollTop = $("log").scrollHeight;
  answer();
}

function again() {
  if (stopping || messages.length === 0) return;
  if (messages.at(-1).role === "assistant") {
    messages.pop();
    $("log").querySelector("article:last-of-type").remove();
  }
  answer();
}

function renew() {
  messages.length = 0;
  slot = null;
  for (const article of [...$("log").querySelectorAll("article")]) article.remove();
  $("empty").hidden = false;
  $("usage").textContent = "";
  trouble("");
  show({ text: [], kept: [], score: [], state: "", budget: 0, recent: 0, cells: 0, tokens_per_s: 0, busy: false });
  busy(false);
  $("say").focus();
}

/* ---- The cache ------------------------------------------------------------------------------------------------- */

const NAMES = { r: "recent", h: "heavy", p: "pinned", s: "sink", e: "gone" };
const SAID = { r: "among the most recent", h: "kept as a heavy hitter", p: "pinned", s: "a sink, always kept", e: "evicted" };
const tokens = [];        /* {node, look} as drawn */
let view = null, here = -1;

function lookOf(v, i) {
  const state = v.state[i];
  return state === "h" ? "heavy s" + Math.round(v.kept[i] * 10) : NAMES[state];
}

/* A token that is only white space or nothing would not be seen. */
function visible(text) {
  return text === "" ? "\u00b7" : text.replace(/\r/g, "\u00b7").replace(/\n/g, "\u21b5\n");
}

function show(v) {
  const box = $("tokens");
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
  const fresh = document.createDocumentFragment();
  view = v;
  while (tokens.length > v.text.length) tokens.pop().node.remove();
  for (let i = 0; i < v.text.length; i++) {
    const look = lookOf(v, i), text = visible(v.text[i]);
    let token = tokens[i];
    if (!token) {
      token = tokens[i] = { node: document.createElement("span"), look: "", text: null };
      token.node.dataset.i = i;
      fresh.append(token.node);
    }
    if (token.text !== text) token.node.textContent = token.text = text;
    if (token.look !== look) token.node.className = token.look = look;
  }
  box.append(fresh);
  if (here >= tokens.length) here = -1;
  mark();
  if (atEnd) box.scrollTop = box.scrollHeight;
  $("fill").style.width = v.budget ? Math.min(100, 100 * v.cells / v.budget) + "%" : "0";
  const parts = [v.cells.toLocaleString() + " of " + v.budget.toLocaleString() + " cells",
                 v.text.length.toLocaleString() + " tokens so far"];
  if (v.tokens_per_s > 0) parts.push(v.tokens_per_s.toFixed(1) + " tokens a second");
  $("gauge").textContent = v.text.length ? parts.join(" \u00b7 ") : "nothing in it yet";
}

function mark() {
  for (const old of $("tokens").querySelectorAll(".here")) old.classList.remove("here");
  if (here < 0 || !view) return;
  tokens[here].node.classList.add("here");
  tokens[here].look = tokens[here].node.className; /* drawn anew when it changes */
  $("detail").textContent = "Token " + here + ", " + JSON.stringify(view.text[here]) + ": " + SAID[view.state[here]] +
    ", in " + Math.round(100 * view.kept[here]) + " % of the heads; score " + view.score[here].toFixed(3) +
    " of the largest";
}

function go(to) {
  if (!tokens.length) return;
  here = Math.max(0, Math.min(tokens.length - 1, to));
  mark();
  tokens[here].node.scrollIntoView({ block: "nearest" });
}

async function look() {
  if (slot === null) return;
  const asked = slot;
  try {
    const response = await fetch("/live/" + asked, { headers: headers() });
    if (response.ok && asked === slot) show(await response.json());
  } catch { /* the answer's own request tells what is wrong */ }
}

async function watch() {
  const mine = stopping;
  while (stopping === mine) {
    await new Promise(resolve => setTimeout(resolve, POLL_MS));
    if (stopping === mine) await look();
  }
}

/* ---- The beginning --------------------------------------------------------------------------------------------- */

$("form").addEventListener("submit", event => { event.preventDefault(); send(); });
$("say").addEventListener("keydown", event => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
document.addEventListener("keydown", event => { if (event.key === "Escape") stopping?.abort(); });
$("stop").addEventListener("click", () => stopping?.abort());
$("again").addEventListener("click", again);
$("new").addEventListener("click", renew);
$("key").addEventListener("change", () => { sessionStorage.setItem("key", $("key").value); greet(); });
$("tokens").addEventListener("mouseover", event => {
  const i = event.target.dataset?.i;
  if (i !== undefined) { here = Number(i); mark(); }
});
$("tokens").addEventListener("keydown", event => {
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -Infinity, End: Infinity };
  if (!(event.key in steps)) return;
  event.preventDefault();
  const from = here < 0 ? (steps[event.key] > 0 ? -1 : tokens.length) : here;
  go(event.key === "Home" ? 0 : event.key === "End" ? tokens.length - 1 : from + steps[event.key]);
});
greet().then(() => { document.documentElement.dataset.drawn = "yes"; });
