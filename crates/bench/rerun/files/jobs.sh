# Processes, pipes, signals and waits.
for i in 1 2 3; do
    seq $i 40 | sort -r | head -n 2 | tail -n 1 || echo no
done
sleep 0.2 &
wait $!
trap 'echo caught' USR1
kill -USR1 $$
date +%N | wc -c
(exit 3)
echo $?
