// Objects, JSON, regular expressions, sorting, promises.
const crypto = require('crypto');
const rows = [];
let seed = 1;
for (let i = 0; i < 20000; i++) {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  rows.push({ id: seed % 5000, name: 'row ' + (seed >>> 7), tags: [i % 7, i % 11] });
}
const text = JSON.stringify(rows);
const back = JSON.parse(text).filter((r) => /row \d*7/.test(r.name));
back.sort((a, b) => a.id - b.id || (a.name < b.name ? -1 : 1));
const digest = (s) => crypto.createHash('sha256').update(s).digest('hex');
Promise.all([1, 2, 3].map((i) => new Promise((done) => crypto.pbkdf2('p' + i, 's', 2000, 16, 'sha256', (e, key) => done(key.toString('hex'))))))
  .then((keys) => console.log(back.length, digest(JSON.stringify(back)), keys.join(' ')));
