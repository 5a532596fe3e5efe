"use strict";
// What became of each token. Data comes from the page itself; see cli/trace_page.c for its layout.
//
//   show (layer, head, pass, token)  ->  text, gauge, detail, heat map, overlap
(function () {
const started = performance.now();
const $ = id => document.getElementById(id);
const make = (tag, cls, text) => {
    const e = document.createElement(tag);
    if (cls) e.className = cls;
    if (text !== undefined) e.textContent = text;
    return e;
};
const many = n => n.toLocaleString("en");

// ---- Data ----

function bytesOf(name) {
    const holder = $("data-" + name), text = atob(holder.textContent.trim()), out = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) out[i] = text.charCodeAt(i);
    holder.remove();
    return out;
}
const F = JSON.parse($("data-facts").textContent);
const N = F.tokens, lanes = F.layers * F.heads, passes = F.passes, P = passes.length, moments = F.moments;
const length = new Uint16Array(bytesOf("length").buffer);
const goneBytes = bytesOf("gone"), gone = F.goneBytes === 1 ? goneBytes : new Uint16Array(goneBytes.buffer);
const stays = F.goneBytes === 1 ? 255 : 65535;
const last = bytesOf("last"), score = bytesOf("score");
const SEEN = 0, LIVE = 1, BUDGET = 2, RECENT = 3; // in a pass
const momentAt = [];
moments.reduce((at, p) => (momentAt.push(at), at + lanes * passes[p][LIVE]), 0);

// A token that ends inside a character shows nothing; the one that completes the character shows it.
const piece = (function () {
    const all = bytesOf("text"), reader = new TextDecoder("utf-8", { ignoreBOM: true }), out = [];
    for (let i = 0, at = 0; i < N; at += length[i++]) {
        out.push(reader.decode(all.subarray(at, at + length[i]), { stream: true }));
    }
    if (N) out[N - 1] += reader.decode();
    return out;
})();

const fixed = new Uint8Array(N); // first tokens and pinned ones
fixed.fill(1, 0, F.sinks);
for (const [a, b] of F.pins) fixed.fill(1, a, Math.min(b, N));

function scoreOf(q) {
    if (!q) return 0;
    return F.least * Math.pow(F.most / F.least, (q - 1) / 254);
}
function number(x) {
    if (x === 0) return "0";
    if (x >= 1000) return many(Math.round(x));
    return x >= 0.001 ? Number(x.toPrecision(3)).toString() : x.toExponential(1);
}

// ---- What is shown ----

const show = { layer: -1, head: -1, pass: P - 1, token: -1, held: false };
const chosen = () => {
    const out = [];
    for (let l = 0; l < F.layers; l++) {
        for (let h = 0; h < F.heads; h++) {
            if ((show.layer < 0 || show.layer === l) && (show.head < 0 || show.head === h)) out.push(l * F.heads + h);
        }
    }
    return out;
};
const LATER = 0, RECENTLY = 1, HEAVY = 2, SINK = 3, GONE = 4;
function fate(lane, i, p) {
    const [seen, , , recent] = passes[p];
    if (i >= seen) return LATER;
    if (gone[lane * N + i] <= p) return GONE;
    return fixed[i] ? SINK : i >= seen - recent ? RECENTLY : HEAVY;
}
function laneName(lane) {
    if (lanes === 1) return "the one lane";
    const layer = "layer " + Math.floor(lane / F.heads);
    return F.heads > 1 ? layer + ", head " + lane % F.heads : layer;
}
function placeName(list) {
    if (list.length === 1) return laneName(list[0]);
    if (list.length === lanes) return "all " + lanes + " lanes";
    return show.layer >= 0 ? "layer " + show.layer : "head " + show.head + " of every layer";
}
function momentOf(p) { // the last one not after pass p; -1: none
    let m = moments.length - 1;
    while (m >= 0 && moments[m] > p) m--;
    return m;
}
// Quantised score of a token that a lane holds at a moment; -1 when it does not.
function scoreAt(lane, i, m) {
    const p = moments[m], base = lane * N;
    if (i >= passes[p][SEEN] || gone[base + i] <= p) return -1;
    let rank = 0;
    for (let k = 0; k < i; k++) rank += gone[base + k] > p;
    return score[momentAt[m] + lane * passes[p][LIVE] + rank];
}

// ---- Colours of canvases ----

let dark = false, ramp = [], blues = [], paint = {};
function mix(stops) {
    const rgb = stops.map(s => [1, 3, 5].map(k => parseInt(s.slice(k, k + 2), 16))), out = [];
    for (let i = 0; i < 256; i++) {
        const x = i / 255 * (rgb.length - 1), k = Math.min(Math.floor(x), rgb.length - 2), f = x - k;
        out.push(rgb[k].map((v, c) => Math.round(v + (rgb[k + 1][c] - v) * f)));
    }
    return out;
}
function readScheme() {
    dark = matchMedia("(prefers-color-scheme: dark)").matches;
    ramp = mix(dark ? ["#3a2a12", "#7d4d12", "#c98518", "#f6cd6e", "#fff8dc"]
                    : ["#fbeccb", "#f7b955", "#dc7a25", "#98330f", "#3d0c06"]);
    blues = mix(dark ? ["#1c2632", "#1d4f80", "#4f93d6", "#d6eaff"] : ["#edf2f7", "#a9cbea", "#3f7fbf", "#0b2f57"]);
    const style = getComputedStyle(document.documentElement);
    for (const name of ["panel", "ink", "soft", "line", "accent", "recent", "heavy", "sink", "track"]) {
        paint[name] = style.getPropertyValue("--" + name).trim();
    }
    paint.gone = dark ? [44, 49, 58] : [222, 225, 230];
    paint.later = dark ? [24, 26, 31] : [250, 249, 246];
}
const css = c => "rgb(" + c.join(",") + ")";
const gradient = list => "linear-gradient(90deg," + [0, 51, 102, 153, 204, 255].map(i => css(list[i])).join(",") + ")";

// A canvas at the screen's resolution; the drawing is in CSS pixels.
function canvasOf(id, width, height) {
    const c = $(id), ratio = window.devicePixelRatio || 1;
    c.width = Math.max(1, Math.round(width * ratio));
    c.height = Math.max(1, Math.round(height * ratio));
    c.style.height = height + "px";
    const g = c.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    return g;
}

// ---- The text ----

const spans = [], base = [];
const shown = new Uint8Array(N).fill(255);
const SHARES = 10, WHENS = 8;
const classes = ["later", "recent", "heavy", "sink"];
for (let k = 1; k <= SHARES; k++) classes.push("share s" + k);
for (let k = 0; k < WHENS; k++) classes.push("gone g" + k);
const SHARE = 4, WHEN = 4 + SHARES;

function buildText() {
    const all = document.createDocumentFragment();
    for (let i = 0; i < N; i++) {
        const s = document.createElement("span");
        let cls = "";
        s.textContent = piece[i];
        s.token = i;
        if (piece[i][0] === "\n") cls = "nl ";
        if (!piece[i] && length[i]) cls = "part ";
        if (i >= F.prompt) cls += i === F.prompt ? "wrote first-wrote " : "wrote ";
        spans.push(s);
        base.push(cls);
        all.append(s);
    }
    $("text").append(all);
}

// By when a token went: the first lane's pass, or with several the last of them.
const whenCode = (p, now) => WHEN + Math.min(WHENS - 1, Math.floor(passes[p][SEEN] / (passes[now][SEEN] + 1) * WHENS));

function codesNow(list) {
    const p = show.pass, [seen, , , recent] = passes[p], code = new Uint8Array(N);
    const n = list.length, held = new Uint16Array(N), went = new Uint16Array(N);
    for (const lane of list) {
        const at = lane * N;
        for (let i = 0; i < seen; i++) {
            const g = gone[at + i];
            if (g > p) held[i]++;
            else if (g > went[i]) went[i] = g;
        }
    }
    for (let i = 0; i < seen; i++) {
        if (!held[i]) code[i] = whenCode(went[i], p);
        else if (fixed[i]) code[i] = 3;
        else if (i >= seen - recent) code[i] = 1;
        else if (n === 1) code[i] = 2;
        else code[i] = SHARE + Math.ceil(held[i] / n * SHARES) - 1;
    }
    return code;
}

function drawText() {
    const code = codesNow(chosen());
    for (let i = 0; i < N; i++) {
        if (code[i] === shown[i]) continue;
        shown[i] = code[i];
        spans[i].className = base[i] + classes[code[i]];
    }
    mark(show.token, true);
}

let marked = -1;
function mark(i, on) {
    if (marked >= 0) spans[marked].classList.remove("here", "held");
    marked = on ? i : -1;
    if (marked >= 0) spans[marked].classList.add("here");
    if (marked >= 0 && show.held) spans[marked].classList.add("held");
}

// ---- The legend, the gauge and the words around ----

function swatch(cls, text, label) {
    const li = make("li"), b = make("b", cls, text);
    li.append(b, make("span", "", label));
    return li;
}
function rampSwatch(classList, label) {
    const li = make("li");
    const box = make("span", "steps");
    box.setAttribute("aria-hidden", "true");
    for (const c of classList) box.append(make("b", c, "a"));
    li.append(box, make("span", "", label));
    return li;
}
function drawLegend(one) {
    const list = [swatch("recent", "a", "recent")];
    if (one) list.push(swatch("heavy", "a", "heavy hitter"));
    else list.push(rampSwatch(["share s2", "share s5", "share s10"], "heavy hitter: in few to all lanes"));
    if (fixed.some(x => x)) list.push(swatch("sink", "a", F.pins.length ? "first or pinned" : "first tokens"));
    list.push(rampSwatch(["gone g0", "gone g3", "gone g7"], "evicted: early to late"));
    if (F.prompt < N) list.push(swatch("wrote", "a", "written by the model"));
    $("legend").replaceChildren(...list);
}
function drawGauge() {
    const [seen, live, budget, recent] = passes[show.pass], most = Math.max(...passes.map(p => p[BUDGET]));
    const newest = Math.min(recent, live, seen);
    let sinks = 0;
    for (let i = 0; i < seen - newest; i++) sinks += fixed[i];
    sinks = Math.min(sinks, live - newest);
    const heavy = live - newest - sinks, part = $("gauge").querySelectorAll("i");
    [sinks, heavy, newest].forEach((n, k) => { part[k].style.width = 100 * n / most + "%"; });
    const parts = [[sinks, F.pins.length ? "first or pinned" : "first tokens"], [heavy, "heavy"], [newest, "recent"]]
        .filter(x => x[0]).map(x => many(x[0]) + " " + x[1]);
    const text = "holds " + many(live) + " of " + many(seen) + " tokens read (budget " + many(budget) + "): " +
                 parts.join(", ");
    $("gauge-text").textContent = "Each lane " + text;
    $("gauge").setAttribute("aria-label", "Budget gauge: each lane " + text);
    $("time-now").textContent = many(seen) + " of " + many(N) + " tokens";
    $("time").setAttribute("aria-valuetext", "after " + many(seen) + " tokens");
}
function writeHead() {
    const end = passes[P - 1];
    document.title = "h2okv trace: " + F.file;
    $("title").textContent = F.file;
    $("summary").textContent = many(N) + " tokens through " + F.model + ". Each of its " + many(lanes) +
        (lanes === 1 ? " lane" : " lanes") + " kept " + many(end[LIVE]) + " of them at the end" +
        (N > end[LIVE] ? " (" + (100 * end[LIVE] / N).toFixed(end[LIVE] < N / 10 ? 1 : 0) + " %)" : "") +
        (F.stopped ? "; the run was stopped before its end." : ".");
    const facts = ["policy " + F.policy, "budget " + many(end[BUDGET]) + " of which recent " + many(end[RECENT]),
        "first tokens " + F.sinks];
    if (F.decay < 1) facts.push("decay " + F.decay);
    if (F.pool) facts.push("pool " + F.pool);
    if (F.guide) facts.push("guide of " + F.guide + " tokens");
    if (F.pins.length) facts.push("pinned " + F.pins.map(p => p[0] + ".." + (p[1] - 1)).join(", "));
    facts.push(many(F.cells) + " cells", many(P) + " passes", "h2okv " + F.version);
    $("facts").textContent = facts.join(" \u00b7 ");
}

// ---- The token ----

function visible(text) {
    return text.replace(/\n/g, "\u21b5").replace(/\t/g, "\u21e5").replace(/^ +| +$/g, s => "\u2423".repeat(s.length));
}
function fact(list, name, value, color) {
    const dd = make("dd");
    if (color) {
        const s = make("span", "swatch");
        s.style.background = color;
        dd.append(s);
    }
    dd.append(value);
    list.append(make("dt", "", name), dd);
}
function ranked(lane, i, m) {
    const q = scoreAt(lane, i, m), live = passes[moments[m]][LIVE], at = momentAt[m] + lane * live;
    let rank = 1;
    for (let k = 0; k < live; k++) rank += score[at + k] > q;
    return number(scoreOf(q)) + " after " + many(passes[moments[m]][SEEN]) + " tokens, no. " + many(rank) + " of " +
           many(live);
}
function oneLane(list, lane, i) {
    const p = show.pass, f = fate(lane, i, p), g = gone[lane * N + i], m = momentOf(p);
    const names = ["not read yet", "kept, recent", "kept, heavy hitter", "kept, first or pinned"];
    const colors = [null, paint.recent, paint.heavy, paint.sink];
    if (f === GONE) {
        fact(list, "Fate", "evicted after " + many(passes[g][SEEN]) + " tokens", css(paint.gone));
        fact(list, "Last score", number(scoreOf(last[lane * N + i])));
    } else {
        fact(list, "Fate", names[f], colors[f]);
        if (f !== LATER && m >= 0 && scoreAt(lane, i, m) >= 0) fact(list, "Score", ranked(lane, i, m));
        if (g !== stays) fact(list, "Later", "evicted after " + many(passes[g][SEEN]) + " tokens");
    }
    fact(list, "Lane", laneName(lane));
}
function manyLanes(list, which, i) {
    const p = show.pass, m = momentOf(p);
    let held = 0, least = Infinity, most = -1, first = Infinity, end = -1;
    for (const lane of which) {
        const g = gone[lane * N + i];
        if (i < passes[p][SEEN] && g > p) held++;
        else if (i < passes[p][SEEN]) {
            first = Math.min(first, g);
            end = Math.max(end, g);
        }
        const q = m >= 0 ? scoreAt(lane, i, m) : -1;
        if (q >= 0) least = Math.min(least, q), most = Math.max(most, q);
    }
    if (i >= passes[p][SEEN]) return fact(list, "Fate", "not read yet");
    const share = held / which.length;
    fact(list, "Held by", many(held) + " of " + many(which.length) + " lanes (" + Math.round(100 * share) + " %)",
         css(held ? ramp[Math.round(255 * share)] : paint.gone));
    if (end >= 0) {
        fact(list, "Evicted", "after " + many(passes[first][SEEN]) +
             (end > first ? " to " + many(passes[end][SEEN]) : "") + " tokens");
    }
    if (most >= 0) fact(list, "Score", number(scoreOf(least)) + " to " + number(scoreOf(most)) + " where held");
}
function drawDetail() {
    const i = show.token, list = make("dl"), which = chosen();
    $("token-hint").hidden = i >= 0;
    $("token-body").hidden = i < 0;
    if (i < 0) return;
    $("token-title").textContent = "Token at position " + many(i) + (i >= F.prompt ? ", written by the model" : "") +
                                   (show.held ? " (held; Esc lets go)" : "");
    $("token-text").textContent = piece[i] ? visible(piece[i])
                                           : length[i] ? "(part of the next character)" : "(no text)";
    if (which.length === 1) oneLane(list, which[0], i);
    else manyLanes(list, which, i);
    list.id = "token-facts";
    $("token-facts").replaceWith(list);
    drawLanes(i);
}
function drawLanes(i) {
    const wide = $("detail").clientWidth - 34;
    if (lanes === 1 || wide < 60) return;
    const cell = Math.max(2, Math.min(12, Math.floor(wide / F.layers))), gap = cell > 4 ? 1 : 0;
    const g = canvasOf("lanes", F.layers * cell, F.heads * cell);
    const colors = [css(paint.later), paint.recent, paint.heavy, paint.sink, css(paint.gone)];
    let held = 0;
    $("lanes").style.width = F.layers * cell + "px";
    for (let lane = 0; lane < lanes; lane++) {
        const f = fate(lane, i, show.pass), x = Math.floor(lane / F.heads) * cell, y = lane % F.heads * cell;
        held += f !== GONE && f !== LATER;
        g.fillStyle = colors[f];
        g.fillRect(x, y, cell - gap, cell - gap);
    }
    $("lanes-text").textContent = "In " + many(held) + " of " + many(lanes) + " lanes; layers across" +
                                  (F.heads > 1 ? ", heads down" : "");
    $("lanes").setAttribute("aria-label", $("lanes-text").textContent);
}

// ---- The heat map ----

// Rows are moments, or for several lanes as many passes as may be; columns are tokens. 0: not read yet, 1: in no lane,
// 2..255: the score, or the share of lanes.
// The ramp spans the scores of the lane itself; first and pinned tokens, which often have by far the most, may be
// past it.
let grid = null, gridFor = "", span = [1, 255];
const M = moments.length, MOST_ROWS = 256;
let rows = moments;
const heldRows = (function () { // which need no scores
    if (P <= MOST_ROWS) return passes.map((_, p) => p);
    const list = new Set(moments), free = MOST_ROWS - M;
    for (let k = 0; k < free; k++) list.add(Math.floor(k * P / free));
    return [...list].sort((a, b) => a - b);
})();
function rowOf(p) { // the last row not after pass p; -1: none
    let m = rows.length - 1;
    while (m >= 0 && rows[m] > p) m--;
    return m;
}
function spanOf(lane) {
    let low = 255, high = 1;
    for (let m = 0; m < M; m++) {
        const p = moments[m];
        for (let i = 0, at = momentAt[m] + lane * passes[p][LIVE]; i < passes[p][SEEN]; i++) {
            if (gone[lane * N + i] <= p) continue;
            const q = score[at++];
            if (fixed[i] || !q) continue;
            if (q < low) low = q;
            if (q > high) high = q;
        }
    }
    return low < high ? [low, high] : [1, 255];
}
function fillOne(lane) {
    const out = new Uint8Array(M * N), shade = new Uint8Array(256);
    span = spanOf(lane);
    for (let q = 0; q < 256; q++) {
        shade[q] = 2 + Math.round(253 * Math.max(0, Math.min(1, (q - span[0]) / (span[1] - span[0]))));
    }
    for (let m = 0; m < M; m++) {
        const p = moments[m], seen = passes[p][SEEN];
        let at = momentAt[m] + lane * passes[p][LIVE];
        for (let i = 0; i < seen; i++) out[m * N + i] = gone[lane * N + i] <= p ? 1 : shade[score[at++]];
    }
    return out;
}
function fillMany(list) {
    const R = heldRows.length, out = new Uint8Array(R * N), lost = new Uint16Array((R + 1) * N);
    const next = new Uint16Array(P + 1);
    for (let p = P, m = R; p >= 0; p--) { // the first row at or after pass p
        while (m > 0 && heldRows[m - 1] >= p) m--;
        next[p] = m;
    }
    for (const lane of list) {
        for (let i = 0; i < N; i++) {
            const g = gone[lane * N + i];
            if (g !== stays) lost[next[g] * N + i]++;
        }
    }
    for (let m = 0; m < R; m++) {
        const seen = passes[heldRows[m]][SEEN];
        for (let i = 0; i < N; i++) {
            const at = m * N + i;
            if (m) lost[at] += lost[at - N];
            const held = list.length - lost[at];
            if (i < seen) out[at] = held ? 2 + Math.round(253 * held / list.length) : 1;
        }
    }
    return out;
}
const GUTTER = 52;
const view = { from: 0, to: N, width: 0, height: 0 };
function setWindow() {
    const size = Math.min(N, Number($("zoom").value) || N), middle = show.token >= 0 ? show.token : Math.floor(N / 2);
    if (size < N && view.to - view.from === size && middle >= view.from && middle < view.to) return;
    view.from = Math.max(0, Math.min(N - size, Math.floor(middle - size / 2)));
    view.to = view.from + size;
}
function heatImage(columns) {
    const image = new ImageData(columns, rows.length), n = view.to - view.from;
    for (let m = 0; m < rows.length; m++) {
        for (let x = 0; x < columns; x++) {
            const a = view.from + Math.floor(x * n / columns);
            const b = Math.max(a + 1, view.from + Math.floor((x + 1) * n / columns));
            let v = 0;
            for (let i = a; i < b; i++) if (grid[m * N + i] > v) v = grid[m * N + i];
            const c = v === 0 ? paint.later : v === 1 ? paint.gone : ramp[Math.round((v - 2) * 255 / 253)];
            image.data.set(c, 4 * (m * columns + x));
            image.data[4 * (m * columns + x) + 3] = 255;
        }
    }
    return image;
}
let small = null, smallFor = "";
function smallHeat(columns) { // a pixel a place; the same while only the time goes on
    const key = [gridFor, view.from, view.to, columns, dark].join();
    if (key !== smallFor) {
        small = document.createElement("canvas");
        small.width = columns;
        small.height = rows.length;
        small.getContext("2d").putImageData(heatImage(columns), 0, 0);
        smallFor = key;
    }
    return small;
}
function drawHeat() {
    const list = chosen(), key = list.join(), room = $("heat").parentNode.clientWidth;
    if (key !== gridFor) {
        grid = list.length === 1 ? fillOne(list[0]) : fillMany(list);
        rows = list.length === 1 ? moments : heldRows;
        gridFor = key;
    }
    setWindow();
    view.width = room - GUTTER;
    view.height = Math.max(170, Math.min(230, Math.round(room * 0.5)));
    const g = canvasOf("heat", room, view.height), ratio = window.devicePixelRatio || 1;
    const columns = Math.max(1, Math.min(view.to - view.from, Math.round(view.width * ratio)));
    g.imageSmoothingEnabled = false;
    g.drawImage(smallHeat(columns), GUTTER, 0, view.width, view.height);
    drawHeatMarks(g);
    writeHeatWords(list);
}
const rowTop = m => m * view.height / rows.length;
function drawHeatMarks(g) {
    const step = view.height / rows.length;
    g.font = "11px " + getComputedStyle(document.body).fontFamily;
    g.textAlign = "right";
    g.textBaseline = "middle";
    g.fillStyle = paint.soft;
    for (let k = 0, free = -1; k < 6; k++) {
        const m = Math.round(k * (rows.length - 1) / 5);
        const y = Math.min(view.height - 6, Math.max(6, rowTop(m) + step / 2));
        if (y < free) continue;
        g.fillText(many(passes[rows[m]][SEEN]), GUTTER - 6, y);
        free = y + 13;
    }
    const wrote = rows.findIndex(p => passes[p][SEEN] > F.prompt);
    if (wrote > 0) rule(g, rowTop(wrote), paint.soft, [3, 3]);
    const now = rowOf(show.pass);
    if (now >= 0) rule(g, Math.min(view.height - 1, rowTop(now + 1)), paint.accent, []);
    if (show.token >= view.from && show.token < view.to) {
        const x = GUTTER + (show.token + 0.5 - view.from) * view.width / (view.to - view.from);
        g.strokeStyle = paint.accent;
        g.setLineDash([]);
        g.beginPath();
        g.moveTo(x, 0);
        g.lineTo(x, view.height);
        g.stroke();
    }
}
function rule(g, y, color, dash) {
    g.strokeStyle = color;
    g.lineWidth = 1.5;
    g.setLineDash(dash);
    g.beginPath();
    g.moveTo(GUTTER, y);
    g.lineTo(GUTTER + view.width, y);
    g.stroke();
}
function scaleBar(id, list, low, high, before) {
    const bar = make("span", "ramp");
    bar.style.background = gradient(list);
    $(id).replaceChildren(...(before || []), make("span", "", low), bar, make("span", "", high));
}
function box(color, text) {
    const b = make("span", "box");
    b.style.background = color;
    return [b, make("span", "", text)];
}
function writeHeatWords(list) {
    const one = list.length === 1;
    const text = (one ? "Scores in " : "Share of lanes that hold the token, ") + placeName(list);
    const from = view.from, to = view.to - 1;
    $("heat-title").textContent = one ? "Scores over time" : "Held over time";
    $("heat-axis").style.paddingLeft = GUTTER + "px";
    $("heat-axis").replaceChildren(...[many(from), "position", many(to)].map(t => make("span", "", t)));
    scaleBar("heat-scale", ramp, one ? number(scoreOf(span[0])) : "few lanes",
             one ? number(scoreOf(span[1])) + " or more" : "all",
             box(css(paint.gone), one ? "evicted" : "in none"));
    $("heat-note").textContent = text + ". Down: tokens read" +
        (F.prompt < N ? "; below the dashed line the model writes" : "") + ". Click for that moment" +
        (view.to - view.from > view.width ? "; a column is its highest token." : ".");
    $("heat").setAttribute("aria-label", text + ", by position and tokens read. Arrow keys go through both.");
}
function heatPlace(event) {
    const r = $("heat").getBoundingClientRect(), x = (event.clientX - r.left - GUTTER) / view.width;
    const y = (event.clientY - r.top) / view.height, n = view.to - view.from;
    if (x < 0 || x >= 1 || y < 0 || y >= 1) return null;
    const row = Math.floor(y * rows.length);
    return { token: bestIn(view.from + Math.floor(x * n), n, row), pass: rows[row] };
}
// Of the tokens that share a column of pixels the one that gives it its colour.
function bestIn(i, n, m) {
    const wide = Math.max(1, Math.floor(n / view.width));
    let best = i;
    for (let k = i; k < Math.min(N, i + wide); k++) if (grid[m * N + k] > grid[m * N + best]) best = k;
    return best;
}

// ---- Overlap ----

const byLayer = F.layers > 1, groups = [];
for (let k = 0; k < (byLayer ? F.layers : F.heads); k++) {
    groups.push(byLayer ? Array.from({ length: F.heads }, (_, h) => k * F.heads + h) : [k]);
}
let alike = [], alikeFor = -1, alikeCell = 1;
function bits(x) {
    x -= x >>> 1 & 0x55555555;
    x = (x & 0x33333333) + (x >>> 2 & 0x33333333);
    return Math.imul(x + (x >>> 4) & 0x0f0f0f0f, 0x01010101) >>> 24;
}
function keptBits() { // the tokens that each lane kept for their scores
    const p = show.pass, end = passes[p][SEEN] - passes[p][RECENT], words = Math.ceil(Math.max(0, end) / 32);
    const sets = [], count = [];
    for (let lane = 0; lane < lanes; lane++) {
        const set = new Int32Array(words), at = lane * N;
        let n = 0;
        for (let i = 0; i < end; i++) {
            if (gone[at + i] > p && !fixed[i]) {
                set[i >> 5] |= 1 << (i & 31);
                n++;
            }
        }
        sets.push(set);
        count.push(n);
    }
    return { sets, count, words };
}
function overlaps() {
    const { sets, count, words } = keptBits(), n = groups.length, out = new Float32Array(n * n).fill(NaN);
    const common = (a, b) => {
        let sum = 0;
        for (let w = 0; w < words; w++) sum += bits(sets[a][w] & sets[b][w]);
        return sum / Math.max(1, Math.min(count[a], count[b]));
    };
    if (!Math.max(...count)) return out;
    for (let x = 0; x < n; x++) {
        for (let y = 0; y <= x; y++) {
            let sum = 0, pairs = 0;
            for (const a of groups[x]) for (const b of groups[y]) if (a !== b) sum += common(a, b), pairs++;
            out[x * n + y] = out[y * n + x] = pairs ? sum / pairs : 1;
        }
    }
    return out;
}
function drawOverlap() {
    const n = groups.length;
    if (n < 2) return;
    if (alikeFor !== show.pass) {
        alike = overlaps();
        alikeFor = show.pass;
    }
    const room = $("overlap").parentNode.clientWidth;
    alikeCell = room / n;
    const g = canvasOf("overlap", room, room), at = byLayer ? show.layer : show.head;
    for (let y = 0; y < n; y++) {
        for (let x = 0; x < n; x++) {
            const v = alike[y * n + x], x0 = Math.round(x * alikeCell), y0 = Math.round(y * alikeCell);
            g.fillStyle = v >= 0 ? css(blues[Math.round(255 * v)]) : paint.track;
            g.fillRect(x0, y0, Math.round((x + 1) * alikeCell) - x0, Math.round((y + 1) * alikeCell) - y0);
        }
    }
    if (at >= 0) {
        g.strokeStyle = paint.heavy;
        g.lineWidth = 2;
        g.strokeRect(at * alikeCell, 1, alikeCell, room - 2);
        g.strokeRect(1, at * alikeCell, room - 2, alikeCell);
    }
    $("overlap-axis").replaceChildren(...["0", byLayer ? "layer" : "head", n - 1].map(t => make("span", "", t)));
    scaleBar("overlap-scale", blues, "0 % in common", "100 %");
    tellOverlap(-1, -1);
    $("overlap").setAttribute("aria-label", "Tokens in common between " + (byLayer ? "layers" : "heads") +
                              ". Arrow keys go through them.");
}
function tellOverlap(x, y) {
    const n = groups.length, word = byLayer ? "Layer" : "Head", v = alike[y * n + x];
    let sum = 0, all = 0;
    for (let a = 0; a < n; a++) for (let b = 0; b < a; b++) sum += alike[a * n + b], all++;
    if (isNaN(alike[0])) $("overlap-note").textContent = "Nothing is kept for its score yet.";
    else if (x < 0) {
        $("overlap-note").textContent = "Of the tokens kept for their scores, two " + (byLayer ? "layers" : "heads") +
            " have " + Math.round(100 * sum / all) + " % in common on average. Click to choose one.";
    } else {
        $("overlap-note").textContent = x === y && byLayer
            ? "The heads of layer " + x + " have " + Math.round(100 * v) + " % in common."
            : word + "s " + x + " and " + y + " have " + Math.round(100 * v) + " % in common.";
    }
}

// ---- Changes ----

let idle = 0;
function later(draw) {
    clearTimeout(idle);
    idle = setTimeout(draw, 120);
}
function lanesChanged() {
    drawLegend(chosen().length === 1);
    drawText();
    drawDetail();
    drawHeat();
    drawOverlap();
}
function setPass(p) {
    show.pass = Math.max(0, Math.min(P - 1, p));
    $("time").value = show.pass;
    drawText();
    drawGauge();
    drawDetail();
    drawHeat();
    later(drawOverlap);
}
function setToken(i, held, scroll) {
    show.token = i;
    if (held !== undefined) show.held = held;
    mark(i, true);
    drawDetail();
    drawHeat();
    if (i < 0 || !scroll) return;
    const box = $("text").getBoundingClientRect(), at = spans[i].getBoundingClientRect();
    if (at.top < box.top + 8 || at.bottom > box.bottom - 8) $("text").scrollTop += at.top - box.top - box.height / 3;
}
function setLanes(layer, head) {
    show.layer = layer;
    show.head = head;
    $("layer").value = layer;
    $("head").value = head;
    lanesChanged();
}

// ---- Input ----

function besideLine(i, down) { // the nearest token of the line above or below
    const from = spans[i].getBoundingClientRect(), step = down ? 1 : -1;
    let line = null, best = i, far = Infinity;
    for (let k = i + step; k >= 0 && k < N && Math.abs(k - i) < 2000; k += step) {
        const r = spans[k].getBoundingClientRect();
        if (!r.width || Math.abs(r.top - from.top) < 4) continue;
        if (line === null) line = r.top;
        if (Math.abs(r.top - line) > 4) break;
        const d = Math.abs(r.left - from.left);
        if (d < far) far = d, best = k;
    }
    return best;
}
function textKey(e) {
    const i = Math.max(0, show.token), to = {
        ArrowRight: () => show.token < 0 ? 0 : i + 1, ArrowLeft: () => i - 1, Home: () => 0, End: () => N - 1,
        ArrowDown: () => besideLine(i, true), ArrowUp: () => besideLine(i, false),
        PageDown: () => i + 200, PageUp: () => i - 200 }[e.key];
    if (e.key === "Enter" || e.key === " ") setToken(i, !show.held, true);
    else if (e.key === "Escape") setToken(show.token, false);
    else if (to) setToken(Math.max(0, Math.min(N - 1, to())), undefined, true);
    else return;
    e.preventDefault();
}
function heatKey(e) {
    const across = { ArrowRight: 1, ArrowLeft: -1 }[e.key], down = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    const wide = Math.max(1, Math.round((view.to - view.from) / view.width));
    if (across) setToken(Math.max(0, Math.min(N - 1, show.token + across * wide)), undefined, true);
    else if (down) setPass(rows[Math.max(0, Math.min(rows.length - 1, rowOf(show.pass) + down))]);
    else return;
    e.preventDefault();
}
let cursor = [0, 0];
function overlapKey(e) {
    const move = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[e.key];
    if (move) {
        cursor = cursor.map((c, k) => Math.max(0, Math.min(groups.length - 1, c + move[k])));
        tellOverlap(...cursor);
    } else if (e.key === "Enter" || e.key === " ") chooseGroup(cursor[1]);
    else return;
    e.preventDefault();
}
function chooseGroup(k) {
    if (byLayer) setLanes(k, show.head);
    else setLanes(show.layer, k);
}
function overlapPlace(e) {
    const r = $("overlap").getBoundingClientRect();
    const at = [e.clientX - r.left, e.clientY - r.top].map(v => Math.floor(v / alikeCell));
    return at.map(k => Math.max(0, Math.min(groups.length - 1, k)));
}
let timer = 0;
function play() {
    const on = !timer;
    clearInterval(timer);
    timer = on ? setInterval(() => show.pass < P - 1 ? setPass(show.pass + 1) : play(), 110) : 0;
    if (on && show.pass === P - 1) setPass(0);
    $("play").textContent = on ? "Pause" : "Play";
    $("play").setAttribute("aria-pressed", on);
}

function listen() {
    $("layer").onchange = $("head").onchange = () => setLanes(Number($("layer").value), Number($("head").value));
    $("time").oninput = () => setPass(Number($("time").value));
    $("play").onclick = play;
    $("zoom").onchange = () => { view.to = view.from; drawHeat(); };
    $("text").onkeydown = textKey;
    $("text").onpointerover = e => { if (e.target.token >= 0 && !show.held) setToken(e.target.token); };
    $("text").onclick = e => {
        if (e.target.token >= 0) setToken(e.target.token, !(show.held && show.token === e.target.token));
    };
    $("heat").onkeydown = heatKey;
    $("heat").onpointermove = e => {
        const at = heatPlace(e);
        if (at && !show.held) setToken(at.token);
    };
    $("heat").onclick = e => {
        const at = heatPlace(e);
        if (!at) return;
        setPass(at.pass);
        setToken(at.token, true, true);
    };
    $("overlap").onkeydown = overlapKey;
    $("overlap").onpointermove = e => tellOverlap(...overlapPlace(e));
    $("overlap").onpointerleave = () => tellOverlap(-1, -1);
    $("overlap").onclick = e => chooseGroup(overlapPlace(e)[1]);
    document.addEventListener("keydown", e => { if (e.key === "Escape" && show.held) setToken(show.token, false); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readScheme(); lanesChanged(); });
    new ResizeObserver(() => later(() => { drawDetail(); drawHeat(); drawOverlap(); })).observe(document.body);
}
function choices(id, every, name, n) {
    const list = [[-1, every]];
    for (let k = 0; k < n; k++) list.push([k, name + k]);
    if (n === 1) list.splice(0, 2, [-1, "the only one"]);
    for (const [value, text] of list) {
        const o = make("option", "", text);
        o.value = value;
        $(id).append(o);
    }
    $(id).disabled = n === 1;
}
function start() {
    readScheme();
    choices("layer", "all " + F.layers, "", F.layers);
    choices("head", "all " + F.heads, "", F.heads);
    for (const size of [N, 2048, 512, 128]) {
        if (size > N || (size < N && size * 1.5 > N)) continue;
        const o = make("option", "", size === N ? "all tokens" : many(size) + " tokens");
        o.value = size;
        $("zoom").append(o);
    }
    $("time").max = P - 1;
    $("time").value = show.pass;
    $("overlap-part").hidden = groups.length < 2;
    buildText();
    writeHead();
    listen();
    drawGauge();
    lanesChanged();
    document.documentElement.dataset.drawn = Math.round(performance.now() - started);
}
start();
})();
