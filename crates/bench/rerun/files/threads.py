import concurrent.futures
import queue
import subprocess
import tempfile
import threading

done = queue.Queue()


def work(n):
    done.put((n, sum(i % (n + 2) for i in range(2000))))


threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(sorted(done.get() for _ in threads))
with concurrent.futures.ThreadPoolExecutor(3) as pool:
    print(sum(pool.map(lambda n: n * n, range(50))))
with tempfile.NamedTemporaryFile() as file:
    file.write(b"b\na\nc\n")
    file.flush()
    print(subprocess.run(["sort", file.name], capture_output=True, check=True).stdout)
