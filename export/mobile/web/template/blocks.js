// Passages in the SQLite file of an index: their vectors are in blocks of up to 256, each with one checksum.

import { EncoderError } from "./msdc.js";

const MOST = 256; // passages of a block
const SIZES = [8, 8, 4]; // bytes of a passage's number, document and scale

export const damaged = (what) => {
  throw new EncoderError(`the index is damaged (${what})`);
};

// Every byte's remainder in CRC-32.
const REMAINDERS = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; ++bit) byte = byte & 1 ? 0xedb88320 ^ (byte >>> 1) : byte >>> 1;
  return byte;
});

export function crc32(...parts) {
  let crc = ~0;
  for (const bytes of parts) for (let at = 0; at < bytes.length; ++at) crc = REMAINDERS[(crc ^ bytes[at]) & 255] ^ (crc >>> 8);
  return ~crc >>> 0;
}

// A passage's: of document, start, end, scale (0 without a vector) and vector.
export function crcOfPassage(document, start, end, scale = null, vector = null) {
  const fields = new DataView(new ArrayBuffer(32));
  [document, start, end].forEach((number, at) => fields.setBigInt64(8 * at, BigInt(number), true));
  fields.setFloat64(24, scale ?? 0, true);
  return crc32(new Uint8Array(fields.buffer), vector ?? []);
}

// A block of a row of the table: its columns, and what they hold.
export function blockOf([row, crc, ...columns]) {
  const [count, width] = [columns[0].length / 8, (8 * columns[3].length) / columns[0].length];
  const fits = [...SIZES, width].every((size, at) => columns[at].length === size * count);
  if (!fits || crc32(...columns) !== crc) damaged(`the vectors of block ${row}`);
  const [numbers, documents, scales] = columns.map(({ buffer, byteOffset, byteLength }) => new DataView(buffer, byteOffset, byteLength));
  const read = (work) => Array.from({ length: count }, (_, at) => work(at));
  return {
    row, columns, width,
    numbers: read((at) => Number(numbers.getBigInt64(8 * at, true))),
    documents: read((at) => Number(documents.getBigInt64(8 * at, true))),
    scales: read((at) => scales.getFloat32(4 * at, true)),
    codes: new Int8Array(columns[3].buffer, columns[3].byteOffset, columns[3].length),
  };
}

const joined = (parts) => {
  const bytes = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
};

/**
 * Writes passages ([document, start, end, scale, vector]), whose vectors fill the last block and further ones. `rows` runs
 * a statement and returns its rows, here and below.
 */
export function addPassages(rows, sql, passages) {
  const [last] = rows(sql.last_block).map(blockOf);
  let row = last?.row ?? 1, count = last?.numbers.length ?? 0, isWritten = true;
  let parts = last ? last.columns.map((column) => [column]) : [[], [], [], []];
  const write = () => {
    const columns = parts.map(joined);
    if (!isWritten) rows(sql.write_block, [row, crc32(...columns), ...columns]);
    isWritten = true;
  };
  for (const [document, start, end, scale, vector] of passages) {
    if (vector && count === MOST) {
      write();
      [row, count, parts] = [row + 1, 0, [[], [], [], []]];
    }
    rows(sql.add_passage, [document, start, end, vector ? row : null, crcOfPassage(document, start, end)]);
    if (!vector) continue;
    const [[number]] = rows("SELECT last_insert_rowid()"), fields = new DataView(new ArrayBuffer(20));
    fields.setBigInt64(0, BigInt(number), true);
    fields.setBigInt64(8, BigInt(document), true);
    fields.setFloat32(16, scale, true);
    const bytes = new Uint8Array(fields.buffer);
    [bytes.subarray(0, 8), bytes.subarray(8, 16), bytes.subarray(16), vector].forEach((part, at) => parts[at].push(part));
    ++count;
    isWritten = false;
  }
  write();
}

/** Removes the documents of keys (JSON), with their words, passages and vectors. */
export function removeDocuments(rows, sql, keys) {
  const removed = new Map();
  for (const [document, row] of rows(sql.blocks_of, [keys])) removed.set(row, (removed.get(row) ?? new Set()).add(document));
  for (const [row, documents] of removed) {
    const [block] = rows(sql.block, [row]).map(blockOf);
    if (!block) damaged(`the vectors of block ${row}`);
    const left = block.documents.flatMap((document, at) => (documents.has(document) ? [] : [at]));
    const columns = [...SIZES, block.width].map((size, column) =>
      joined(left.map((at) => block.columns[column].subarray(at * size, (at + 1) * size))));
    if (left.length) rows(sql.write_block, [row, crc32(...columns), ...columns]);
    else rows(sql.remove_block, [row]);
  }
  rows(sql.remove, [keys]);
}

/** The passages of the table `rebuilt`, as `addPassages` takes them. */
export function rebuiltPassages(rows, sql) {
  return rows(sql.rebuilt).map((row) => {
    const crc = row.pop();
    if (crcOfPassage(...row) !== crc) damaged(`a new passage of document ${row[0]}`);
    return row;
  });
}
