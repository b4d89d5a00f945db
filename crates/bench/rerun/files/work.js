const fs = require("fs");
fs.readFile("words.txt", "utf8", (error, text) => {
    if (error) throw error;
    const counts = new Map();
    for (const line of text.split("\n")) {
        const word = line.split(" ")[1];
        counts.set(word, (counts.get(word) || 0) + 1);
    }
    console.log([...counts].sort().slice(0, 3));
    setTimeout(() => console.log("end", typeof Date.now()), 20);
});
