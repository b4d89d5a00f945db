#include <algorithm>
#include <map>
#include <string>
#include <vector>

int count(const std::vector<std::string> &words) {
    std::map<std::string, int> counts;
    for (const auto &w : words) counts[w]++;
    auto most = std::max_element(counts.begin(), counts.end(), [](auto &a, auto &b) { return a.second < b.second; });
    return most == counts.end() ? 0 : most->second;
}
