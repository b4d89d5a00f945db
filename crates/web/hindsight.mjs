// Looks at a recording of Hindsight, in a browser or in Node.
//
//     import { Recording } from "./hindsight.mjs";
//     const module = await WebAssembly.compileStreaming(fetch("hindsight_web.wasm"));
//     const recording = await Recording.open(module, bytes);         // bytes: a Uint8Array, all of the file
//     recording.info.command
//     recording.ask("at", { at: "50%" }).registers.rip
//     recording.ask("step", { direction: "backward", count: 100 })
//
// README.md beside this file lists the questions. A question blocks until its answer is there, so a page asks in a worker.

/** A question has no answer. `kind` says why, in one word; "failed" says that the recording has to be opened anew. */
export class HindsightError extends Error {
    constructor({ kind, message }) {
        super(message);
        this.name = "HindsightError";
        this.kind = kind;
    }
}

/** An open recording. It has a memory of its own, which goes when nobody refers to it any more. */
export class Recording {
    #exports;
    /** Why no more questions can be answered. */
    #failure = null;

    /** What the recording is of, as the question "info" tells it. */
    info;

    /** Opens a recording. `module` is a compiled WebAssembly.Module, or the bytes of one. */
    static async open(module, bytes) {
        const compiled = module instanceof WebAssembly.Module ? module : await WebAssembly.compile(module);
        const recording = new Recording();
        recording.#exports = (await WebAssembly.instantiate(compiled, {})).exports;
        recording.info = recording.#call("hindsight_open", bytes);
        return recording;
    }

    /** Asks a question, and returns its result. */
    ask(question, fields = {}) {
        return this.#call("hindsight_ask", new TextEncoder().encode(JSON.stringify({ ...fields, ask: question })));
    }

    /** Puts bytes in, calls a function, and reads its answer. */
    #call(name, bytes) {
        if (this.#failure !== null) {
            throw new HindsightError({ kind: "failed", message: this.#failure });
        }
        let length;
        try {
            const at = this.#exports.hindsight_input(bytes.length) >>> 0;
            if (at !== 0) {
                new Uint8Array(this.#exports.memory.buffer, at, bytes.length).set(bytes);
                length = this.#exports[name]();
            }
        } catch (trap) {
            this.#failure = this.#panic() || String(trap);
            throw new HindsightError({ kind: "failed", message: this.#failure });
        }
        if (length === undefined) {
            // Nothing was changed, so other requests can follow.
            throw new HindsightError({ kind: "request", message: "there is not enough memory for it" });
        }
        const { result, error } = JSON.parse(this.#read(length));
        if (error !== undefined) {
            throw new HindsightError(error);
        }
        return result;
    }

    /** What a panic has said. Nothing, if it was none. */
    #panic() {
        try {
            return this.#read(this.#exports.hindsight_length());
        } catch {
            // The instance is in the middle of something, for example at the end of its stack.
            return "";
        }
    }

    #read(length) {
        const at = this.#exports.hindsight_answer() >>> 0;
        return new TextDecoder().decode(new Uint8Array(this.#exports.memory.buffer, at, length >>> 0));
    }
}
