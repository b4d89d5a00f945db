// What C++ offers for threads to meet.
#include <atomic>
#include <barrier>
#include <condition_variable>
#include <cstdio>
#include <future>
#include <latch>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <thread>
#include <vector>

int main() {
    enum { THREADS = 3, ROUNDS = 100 };
    std::mutex mutex;
    std::shared_mutex shared;
    std::condition_variable turns;
    std::atomic<int> rounds{0};
    std::latch begun{THREADS};
    std::barrier<> together{THREADS};
    std::counting_semaphore<8> places{1};
    std::promise<int> promise;
    auto future = promise.get_future().share();
    long turn = 0, sum = 0, written = 0;
    std::vector<std::thread> all;
    for (int me = 0; me < THREADS; me++)
        all.emplace_back([&, me] {
            begun.arrive_and_wait();
            for (int i = 0; i < ROUNDS; i++) {
                {
                    std::unique_lock lock(mutex);
                    turns.wait(lock, [&] { return turn % THREADS == me; });
                    turn++;
                    turns.notify_all();
                }
                places.acquire();
                sum++;
                places.release();
                if (i % 10 == me) {
                    std::unique_lock lock(shared);
                    written++;
                } else {
                    std::shared_lock lock(shared);
                }
                together.arrive_and_wait();
                if (me == 0) {
                    rounds.store(i + 1);
                    rounds.notify_all();
                } else {
                    rounds.wait(i);
                }
                together.arrive_and_wait();
            }
            if (me == 1) promise.set_value(7);
            if (me == 2) sum += future.get();
        });
    for (auto &t : all) t.join();
    std::printf("%ld %ld %ld %d\n", turn, sum, written, rounds.load());
}
