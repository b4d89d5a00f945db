import java.util.*;
import java.util.stream.*;

/** Strings, maps, sorting and parallel streams. */
public class Mixed {
    public static void main(String[] args) {
        Map<String, Integer> counts = new TreeMap<>();
        long seed = 1;
        for (int i = 0; i < 60_000; i++) {
            seed = seed * 6364136223846793005L + 1442695040888963407L;
            counts.merge("k" + (seed >>> 52), 1, Integer::sum);
        }
        String text = counts.entrySet().stream().map(e -> e.getKey() + "=" + e.getValue()).collect(Collectors.joining(","));
        long sum = IntStream.range(0, 400_000).parallel().mapToLong(i -> (long) i * i % 977).sum();
        System.out.println(text.hashCode() + " " + counts.size() + " " + sum);
    }
}
