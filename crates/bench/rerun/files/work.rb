counts = Hash.new(0)
File.foreach("words.txt") { |l| counts[l.split[1]] += 1 }
p counts.sort.first(3)
Thread.new { puts counts.size }.join
puts `sort words.txt | head -n 1`
warn rand.class
