use strict;
use warnings;
use Digest::SHA qw(sha256_hex);
use List::Util qw(sum max reduce);
my (%count, @lines);
open my $in, '<', 'words.txt' or die $!;
while (<$in>) {
    my ($n, $text, $hex) = split / /, $_, 3;
    $count{$text =~ s/\s+/_/gr} += $n;
    push @lines, [$n, hex $hex];
}
printf "%s %d\n", $_, $count{$_} for (sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count)[0 .. 5];
print sum(map { $_->[0] } @lines), " ", max(map { $_->[1] } @lines), "\n";
print sha256_hex(join ',', map { "@$_" } @lines), "\n";
my $text = join '', map { chr(97 + $_ % 26) } 1 .. 2000;
my $n = () = $text =~ /(?<=[aeiou])[^aeiou]{2,3}(?=[aeiou])/g;
print "$n ", (reduce { ($a * 31 + $b) % 1000003 } map { ord } split //, $text), "\n";
printf STDERR "%.10g %e %s\n", 1 / 7, 2**70, sprintf('%vd', '1.22.333');
exit 3;
