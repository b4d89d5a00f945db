// Exceptions, virtual calls, allocation, standard containers.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
};
struct Square : Shape {
    double side;
    explicit Square(double s) : side(s) {}
    double area() const override { return side * side; }
};
struct Never : Shape {
    double area() const override { throw std::domain_error("no area"); }
};

static int deep(int n) {
    std::string guard(static_cast<size_t>(n), 'x');
    if (n == 0)
        throw std::runtime_error("bottom");
    return deep(n - 1) + static_cast<int>(guard.size());
}

int main() {
    std::map<std::string, int> count;
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 0; i < 200; i++) {
        if (i % 10 == 3)
            shapes.push_back(std::make_unique<Never>());
        else
            shapes.push_back(std::make_unique<Square>(i));
    }
    double total = 0;
    for (auto &s : shapes) {
        try {
            total += s->area();
        } catch (const std::exception &e) {
            count[e.what()]++;
        }
    }
    for (int i = 0; i < 100; i++) {
        try {
            total += deep(i % 17);
        } catch (const std::runtime_error &e) {
            count[std::string(e.what()) + std::to_string(i % 3)]++;
        }
    }
    for (auto &[name, n] : count)
        std::printf("%s %d\n", name.c_str(), n);
    std::printf("%g\n", total);
    throw 5;
}
