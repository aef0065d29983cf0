// Writes the answers of Node.js into ecmascript.json: per case the numbers of the texts that match, or null if it is
// refused. Run it after adding patterns or texts: node tests/language/formats/record_ecmascript.mjs
import { readFileSync, writeFileSync } from "node:fs";

const file = new URL("ecmascript.json", import.meta.url);
const { texts, cases } = JSON.parse(readFileSync(file));
const answers = cases.map(([pattern, flags]) => {
  try {
    const expression = new RegExp(pattern, flags);
    return [pattern, flags, texts.flatMap((text, number) => (expression.test(text) ? [number] : []))];
  } catch {
    return [pattern, flags, null];
  }
});
const ascii = (value) => JSON.stringify(value).replace(/[^ -~]/g, (unit) => "\\u" + unit.charCodeAt().toString(16).padStart(4, "0"));
const lines = answers.map(ascii).join(",\n");
writeFileSync(file, `{"recordedBy": "Node.js ${process.version}",\n"texts": ${ascii(texts)},\n"cases": [\n${lines}\n]}\n`);
