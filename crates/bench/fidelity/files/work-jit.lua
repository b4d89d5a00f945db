local function mandelbrot(size)
  local total = 0
  for y = 0, size - 1 do
    for x = 0, size - 1 do
      local cr, ci, zr, zi, n = 2 * x / size - 1.5, 2 * y / size - 1, 0, 0, 0
      while n < 60 and zr * zr + zi * zi < 4 do
        zr, zi, n = zr * zr - zi * zi + cr, 2 * zr * zi + ci, n + 1
      end
      total = total + n
    end
  end
  return total
end
local counts = {}
for i = 1, 200000 do
  local key = "k" .. (i * 7919 % 97)
  counts[key] = (counts[key] or 0) + i % 13
end
print(jit.status())
print(mandelbrot(200), counts.k5, counts.k96)
