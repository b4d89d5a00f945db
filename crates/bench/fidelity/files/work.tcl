set f [open words.txt]
set total 0
while {[gets $f line] >= 0} { incr total [lindex [split $line] 0] }
puts $total
puts [lsort -integer -decreasing {5 3 9 1}]
puts [regsub -all {[aeiou]} "regular expressions" *]
puts [format %08.3f [expr {sqrt(2) * 100}]]
puts [string map {a 1 b 2} aabbcc]
exit 2
