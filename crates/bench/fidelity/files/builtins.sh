# Builtins only: nothing here starts another process.
count=0
while read -r n rest; do
    count=$((count + n))
    case $rest in
    *dolor*) dolor=$((${dolor:-0} + 1)) ;;
    esac
done < words.txt
echo "$count $dolor"
f() {
    local i=$1
    [ "$i" -le 1 ] && { echo 1; return; }
    result=$((i * ${result:-1}))
    f $((i - 1))
}
f 12
echo "$result"
printf '%s|%05d|%x\n' text 42 255
set -- one two 'three four'
for a in "$@"; do echo "${#a}: ${a%e*}"; done
cd tree/a && for x in *.txt; do echo "$x"; done
trap 'echo leaving' EXIT
umask 027
echo made > made.txt
exit 5
