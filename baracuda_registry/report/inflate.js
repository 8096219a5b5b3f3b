"use strict";
// zlib streams: by the browser where it can (DecompressionStream), else by the decoder below (RFC 1950 and 1951).

async function unpack(id) {
  const text = atob(document.getElementById(id).textContent.trim());
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  let plain;
  if (typeof DecompressionStream === "function") {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    plain = new Uint8Array(await new Response(stream).arrayBuffer());
  } else {
    plain = inflate(bytes);
  }
  return JSON.parse(new TextDecoder().decode(plain));
}

const LENGTH_BASE = [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258];
const LENGTH_BITS = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const REACH_BASE = [1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577];
const REACH_BITS = [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13];
const ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

// A canonical Huffman code: how many codes of each length, and the symbols in order.
function codeOf(lengths) {
  const counts = new Array(16).fill(0);
  for (const length of lengths) counts[length]++;
  counts[0] = 0;
  const next = [0];
  for (let i = 1; i < 16; i++) next[i] = (next[i - 1] || 0) + counts[i - 1];
  const symbols = [];
  lengths.forEach((length, symbol) => { if (length) symbols[next[length]++] = symbol; });
  return { counts, symbols };
}

function inflate(data) {
  let at = 2, hold = 0, held = 0, size = 0;  // past the two bytes of zlib's header
  let out = new Uint8Array(data.length * 4 + 1024);
  const bits = (count) => {
    while (held < count) { hold |= data[at++] << held; held += 8; }
    const value = hold & ((1 << count) - 1);
    hold >>>= count; held -= count;
    return value;
  };
  const symbol = (code) => {
    let value = 0, first = 0, index = 0;
    for (let length = 1; length < 16; length++) {
      value |= bits(1);
      const count = code.counts[length];
      if (value - count < first) return code.symbols[index + value - first];
      index += count; first = (first + count) << 1; value <<= 1;
    }
    throw new Error("damaged data");
  };
  const room = (count) => {
    if (size + count <= out.length) return;
    const larger = new Uint8Array(Math.max(out.length * 2, size + count));
    larger.set(out); out = larger;
  };
  for (let last = 0; !last;) {
    last = bits(1);
    const kind = bits(2);
    if (kind === 0) {
      hold = 0; held = 0;
      const count = data[at] | (data[at + 1] << 8);
      at += 4; room(count);
      out.set(data.subarray(at, at + count), size);
      at += count; size += count;
      continue;
    }
    let literals, reaches;
    if (kind === 1) {
      literals = codeOf(Array.from({ length: 288 }, (_, i) => (i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8)));
      reaches = codeOf(new Array(30).fill(5));
    } else {
      const many = bits(5) + 257, far = bits(5) + 1, given = bits(4) + 4;
      const lengths = new Array(19).fill(0);
      for (let i = 0; i < given; i++) lengths[ORDER[i]] = bits(3);
      const code = codeOf(lengths), all = [];
      while (all.length < many + far) {
        const s = symbol(code);
        if (s < 16) all.push(s);
        else {
          const value = s === 16 ? all[all.length - 1] : 0;
          let times = s === 16 ? 3 + bits(2) : s === 17 ? 3 + bits(3) : 11 + bits(7);
          while (times--) all.push(value);
        }
      }
      literals = codeOf(all.slice(0, many)); reaches = codeOf(all.slice(many));
    }
    for (;;) {
      const s = symbol(literals);
      if (s === 256) break;
      if (s < 256) { room(1); out[size++] = s; continue; }
      const length = LENGTH_BASE[s - 257] + bits(LENGTH_BITS[s - 257]);
      const r = symbol(reaches);
      const reach = REACH_BASE[r] + bits(REACH_BITS[r]);
      room(length);
      for (let i = 0; i < length; i++, size++) out[size] = out[size - reach];
    }
  }
  return out.subarray(0, size);
}
