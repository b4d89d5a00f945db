-- Recursion, tables, closures, strings, sorting.
local scale = tonumber(arg[1])

local function ack(m, n)
  if m == 0 then return n + 1 end
  if n == 0 then return ack(m - 1, 1) end
  return ack(m - 1, ack(m, n - 1))
end

local function build(depth)
  if depth == 0 then return { value = 1 } end
  return { left = build(depth - 1), right = build(depth - 1), value = depth }
end

local function total(node)
  if not node.left then return node.value end
  return node.value + total(node.left) + total(node.right)
end

local function queens(n)
  local found, cols, up, down = 0, {}, {}, {}
  local function place(row)
    if row > n then found = found + 1 return end
    for c = 1, n do
      local u, d = row + c, row - c + n
      if not (cols[c] or up[u] or down[d]) then
        cols[c], up[u], down[d] = true, true, true
        place(row + 1)
        cols[c], up[u], down[d] = nil, nil, nil
      end
    end
  end
  place(1)
  return found
end

local function words(n)
  local parts, state = {}, 11
  for i = 1, n do
    state = (state * 1103515245 + 12345) % 2147483648
    parts[i] = string.format("%s-%x", ("ab"):rep(state % 9), state % 65536)
  end
  table.sort(parts)
  local text = table.concat(parts, " ")
  local count = 0
  for _ in text:gmatch("%x+") do count = count + 1 end
  return count, #text:gsub("ab", "z"), text:sub(1, 12)
end

print(ack(2, 300 * scale))
local sum = 0
for _ = 1, 9 * scale do sum = sum + total(build(13)) end
print(sum)
for _ = 1, scale do print(queens(7)) end
for _ = 1, 2 * scale do print(words(20000)) end
