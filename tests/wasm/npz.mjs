// Arrays of NumPy's .npz files, as numpy.savez writes them: entries that are not compressed.
//
//   read(bytes)            {name: {dtype, dims, data}}; data: the elements' bytes
//   write({name: array})   the bytes of such a file

import { crc32 } from "node:zlib";

const LOCAL = 0x04034b50, CENTRAL = 0x02014b50, END = 0x06054b50;
const LOCAL_BYTES = 30, CENTRAL_BYTES = 46, END_BYTES = 22;
const VERSION = 20; // of a reader: 2.0
const NPY_HEAD = 10; // magic, version 1.0, and the length of the header
const NPY_ALIGNED = 64;

export function read(file) {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  const end = file.byteLength - END_BYTES; // numpy writes no comment
  if (view.getUint32(end, true) !== END) throw new Error("no end of a zip file where it should be");
  const arrays = {};
  let at = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left > 0; left--) {
    const [method, bytes] = [view.getUint16(at + 10, true), view.getUint32(at + 24, true)];
    const [name, extra, comment] = [28, 30, 32].map((place) => view.getUint16(at + place, true));
    const start = view.getUint32(at + 42, true);
    const file_name = text(file, at + CENTRAL_BYTES, name);
    if (method !== 0) throw new Error(`${file_name} is compressed: write it with numpy.savez`);
    const skipped = view.getUint16(start + 26, true) + view.getUint16(start + 28, true);
    const first = start + LOCAL_BYTES + skipped;
    arrays[file_name.replace(/\.npy$/, "")] = array(file.subarray(first, first + bytes));
    at += CENTRAL_BYTES + name + extra + comment;
  }
  return arrays;
}

function array(npy) {
  const length = new DataView(npy.buffer, npy.byteOffset).getUint16(8, true);
  const header = text(npy, NPY_HEAD, length);
  const dtype = /'descr': '[<|=]?([^']+)'/.exec(header)[1];
  const dims = /'shape': \(([^)]*)\)/.exec(header)[1].split(",").filter((each) => each.trim());
  if (header.includes("'fortran_order': True")) throw new Error("columns first: not supported");
  return { dtype, dims: dims.map(Number), data: npy.slice(NPY_HEAD + length) };
}

export function write(arrays) {
  const parts = [], directory = [];
  let offset = 0;
  for (const [key, each] of Object.entries(arrays)) {
    const name = Buffer.from(`${key}.npy`), content = npy(each);
    const fields = [VERSION, 0, 0, 0, 0]; // flags, method, time and date: none
    const sizes = [crc32(content), content.length, content.length];
    const local = Buffer.alloc(LOCAL_BYTES);
    put(local, [LOCAL], fields, sizes, [name.length, 0]);
    const central = Buffer.alloc(CENTRAL_BYTES);
    put(central, [CENTRAL], [VERSION, ...fields], sizes, [name.length, 0, 0, 0, 0], [0, offset]);
    parts.push(local, name, content);
    directory.push(central, name);
    offset += LOCAL_BYTES + name.length + content.length;
  }
  const count = directory.length / 2, bytes = Buffer.concat(directory).length;
  const end = Buffer.alloc(END_BYTES);
  put(end, [END], [0, 0, count, count], [bytes, offset], [0]);
  return Buffer.concat([...parts, ...directory, end]);
}

// Groups of numbers, one after the other: of 4 bytes and of 2 in turn.
function put(buffer, ...groups) {
  let at = 0;
  for (const [i, group] of groups.entries())
    for (const value of group) at = i % 2 ? buffer.writeUInt16LE(value, at) : buffer.writeUInt32LE(value, at);
}

function npy({ dtype, dims, data }) {
  const order = /1$/.test(dtype) ? "|" : "<";
  const shape = dims.length === 1 ? `${dims[0]},` : dims.join(", ");
  const words = `{'descr': '${order}${dtype}', 'fortran_order': False, 'shape': (${shape}), }`;
  const length = NPY_ALIGNED * Math.ceil((NPY_HEAD + words.length + 1) / NPY_ALIGNED) - NPY_HEAD;
  const head = Buffer.alloc(NPY_HEAD + length, " ");
  head.write("\x93NUMPY\x01\x00", "latin1");
  head.writeUInt16LE(length, NPY_HEAD - 2);
  head.write(words, NPY_HEAD);
  head.write("\n", NPY_HEAD + length - 1);
  return Buffer.concat([head, data]);
}

function text(bytes, at, length) {
  return new TextDecoder("utf-8").decode(bytes.subarray(at, at + length));
}
