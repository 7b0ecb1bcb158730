// A compiled regular expression over UTF-8: a backtracking matcher whose character classes are tables.

import { damaged, EncoderError, nextCharacter, spend } from "./bytes.js";
import { decode, FILE, NONE, previousCharacter, words } from "./compiled_file.js";

const MATCH = 0, SET = 1, CHARACTER = 2, SPLIT = 3, JUMP = 4, REPEAT = 5, LOOK = 6, BEGIN = 7, END = 8;
const MAX_DEPTH = 4, MAX_INSTRUCTIONS = 16384;
const STEP = 8; // what a step spends

export class Pattern {
  constructor(blob, sets) {
    this.program = words(blob);
    this.sets = sets;
    const count = this.program.length / 4;
    if (!(count >= 1 && count <= MAX_INSTRUCTIONS)) damaged(FILE);
    for (let i = 0; i < count; ++i) {
      const [op, a, b] = this.program.subarray(4 * i, 4 * i + 3);
      const fits = op === SET || op === REPEAT ? a < sets.length : op === SPLIT ? a < count && b < count : true;
      const lands = op === JUMP || op === LOOK ? a < count : true;
      if (op > END || !fits || !lands || (i + 1 === count && op !== MATCH && op !== JUMP)) damaged(FILE);
    }
  }

  // End of the match at `start`, -1 for none. Alternatives are tried in order, as in Perl.
  match(text, start, instruction = 0, depth = 0) {
    if (depth > MAX_DEPTH) damaged(FILE);
    const { program, sets } = this;
    const size = text.length, most = size + program.length / 4 + 64;
    const choices = []; // where to go on when a branch fails: [instruction, at, least], one character less each time
    const remember = (choice) => {
      if (choices.length >= most) throw new EncoderError("the tokenizer's pattern backtracks too much");
      choices.push(choice);
    };
    for (let at = start; ; ) {
      spend(STEP);
      const place = 4 * instruction, op = program[place], a = program[place + 1], b = program[place + 2];
      let ok = true;
      switch (op) {
        case MATCH:
          return at;
        case SET:
        case CHARACTER: {
          const end = nextCharacter(text, at, size);
          ok = at < size && (op === SET ? sets[a].has(decode(text, at, end)) : decode(text, at, end) === a);
          if (ok) at = end;
          break;
        }
        case SPLIT:
          remember([b, at, at]);
          instruction = a;
          continue;
        case JUMP:
          instruction = a;
          continue;
        case REPEAT: {
          // b: least | possessive << 31; c: most. A single pass, then one choice for all shorter ends.
          const least = b & 0x7fffffff, c = program[place + 3];
          let count = 0, floor = at;
          while ((count < c || c === NONE) && at < size) {
            const end = nextCharacter(text, at, size);
            if (!sets[a].has(decode(text, at, end))) break;
            spend(STEP);
            at = end;
            if (++count === least) floor = at;
          }
          ok = count >= least;
          if (ok && at > floor && b >>> 31 === 0) remember([instruction + 1, previousCharacter(text, at), floor]);
          break;
        }
        case LOOK: {
          const found = this.match(text, at, instruction + 1, depth + 1) >= 0;
          ok = found !== (b === 1);
          if (ok) {
            instruction = a;
            continue;
          }
          break;
        }
        case BEGIN:
          ok = at === 0;
          break;
        case END:
          ok = at === size;
      }
      if (ok) {
        ++instruction;
        continue;
      }
      const back = choices.at(-1);
      if (!back) return -1;
      [instruction, at] = back;
      if (at > back[2]) back[1] = previousCharacter(text, at);
      else choices.pop();
    }
  }

  // The first match at or after `from` as [start, end], null for none. A match is never empty.
  search(text, from) {
    for (let at = from; at < text.length; at = nextCharacter(text, at)) {
      const end = this.match(text, at);
      if (end > at) return [at, end];
    }
    return null;
  }
}
