local t = {}
for line in io.lines("words.txt") do
  local n, word = line:match("^(%d+) (%S*)")
  t[#t + 1] = { tonumber(n), word }
end
table.sort(t, function(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end)
for i = 1, 5 do print(t[i][1], t[i][2]) end
local co = coroutine.wrap(function() for i = 1, 5 do coroutine.yield(i * i) end end)
print(co(), co(), co())
print(string.format("%q %5.2f %x", "a\nb", math.pi, 255), 7 // 2, 2^53, 1 << 62)
print(pcall(error, "raised"))
local f = io.open("lua.out", "w")
f:write(("x"):rep(1000, ","))
f:close()
os.exit(4)
