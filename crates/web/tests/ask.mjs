// Asks the questions of a file, a line of JSON each, about a recording: node ask.mjs MODULE RECORDING QUESTIONS.
// Prints a line for each: its result, or {"error": …}. The first line is about opening it. To standard error go the times.

import { readFileSync } from "node:fs";
import { Recording } from "../hindsight.mjs";

const [module, path, questions] = process.argv.slice(2);
const compiled = await WebAssembly.compile(readFileSync(module));
const took = (what, since) => console.error(`${what}: ${(performance.now() - since).toFixed(0)} ms`);

const say = (make) => {
    try {
        console.log(JSON.stringify(make()));
        return true;
    } catch (e) {
        if (e.name !== "HindsightError") {
            throw e;
        }
        console.log(JSON.stringify({ error: { kind: e.kind, message: e.message } }));
        return false;
    }
};

const bytes = readFileSync(path);
const since = performance.now();
const recording = await Recording.open(compiled, bytes).catch((e) => e);
took("open", since);
const opened = say(() => {
    if (recording instanceof Error) {
        throw recording;
    }
    return recording.info;
});
for (const line of opened ? readFileSync(questions, "utf8").split("\n").filter(Boolean) : []) {
    const { ask, ...fields } = JSON.parse(line);
    const since = performance.now();
    say(() => recording.ask(ask, fields));
    took(line, since);
}
