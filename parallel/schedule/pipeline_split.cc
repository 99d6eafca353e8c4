#include "parallel/schedule/pipeline_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>

#include "base/error.h"
#include "base/units.h"

namespace spillway::parallel {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1 + 1e-9;  // factor by which equal costs may differ, since the same seconds may be added in another order

class Splitter {
 public:
  Splitter(std::span<const BlockCost> blocks, i64 stages, i64 stage_bytes)
      : blocks_(blocks.size()), stages_(static_cast<size_t>(stages)), stage_bytes_(stage_bytes) {
    for (const BlockCost& b : blocks) {
      seconds_.push_back(seconds_.back() + b.seconds);
      bytes_.push_back(bytes_.back() + b.bytes);
    }
  }

  std::vector<u16> run() {
    const double longest = solve([&](size_t a, size_t b) { return seconds(a, b); }, [](double x, double y) { return std::max(x, y); });
    if (longest == kNever) return {};
    const auto square = [&](size_t a, size_t b) { return seconds(a, b) > longest * kRounding ? kNever : seconds(a, b) * seconds(a, b); };
    solve(square, std::plus<>());
    return begins();
  }

 private:
  double seconds(size_t a, size_t b) const { return seconds_[b] - seconds_[a]; }
  bool fits(size_t a, size_t b) const { return stage_bytes_ == 0 || bytes_[b] - bytes_[a] <= stage_bytes_; }

  // Splits the blocks so that the total cost is least, and returns this cost. `cost` returns the cost of one stage; `together` combines
  // the costs of several stages. The beginnings of the stages are stored in begin_.
  template <class Cost, class Together>
  double solve(const Cost& cost, const Together& together) {
    // for each b: the least cost of the first b blocks, divided into the stages considered so far
    std::vector<double> least(blocks_ + 1, kNever);
    least[0] = 0;
    begin_.assign(stages_, std::vector<size_t>(blocks_ + 1, 0));
    for (size_t s = 0; s < stages_; ++s) {
      std::vector<double> next(blocks_ + 1, kNever);
      for (size_t b = s + 1; b <= blocks_; ++b) {
        for (size_t a = s; a < b; ++a) {
          const double all = fits(a, b) ? together(least[a], cost(a, b)) : kNever;
          if (all * kRounding < next[b] || (all < kNever && next[b] == kNever)) next[b] = all, begin_[s][b] = a;
        }
      }
      least = std::move(next);
    }
    return least[blocks_];
  }

  std::vector<u16> begins() const {
    std::vector<u16> all(stages_);
    size_t end = blocks_;
    for (size_t s = stages_; s-- > 0;) all[s] = static_cast<u16>(end = begin_[s][end]);
    return all;
  }

  const size_t blocks_, stages_;
  const i64 stage_bytes_;
  std::vector<double> seconds_{0};
  std::vector<i64> bytes_{0};               // sums of bytes; element b is that of all blocks before block b
  std::vector<std::vector<size_t>> begin_;  // where each stage begins, indexed by the stage and by the block before which it ends
};

}  // namespace

std::vector<u16> split_blocks(std::span<const BlockCost> blocks, i64 stages, i64 stage_bytes) {
  if (stages < 1 || stages > std::ssize(blocks))
    throw Error(ErrorCode::usage,
                fmt::format("[pipeline split] expected 1 to {} stages, at most one for each block, got {}", blocks.size(), stages));
  const std::vector<u16> begins = Splitter(blocks, stages, stage_bytes).run();
  if (begins.empty())
    throw Error(ErrorCode::refused,
                fmt::format("[pipeline split] expected {} stages of at most {} of memory each, but no split of the {} blocks "
                            "stays below that: choose more stages or offload more",
                            stages, format_bytes(stage_bytes), blocks.size()));
  return begins;
}

std::vector<u16> parse_split(std::string_view text, i64 stages, i64 blocks) {
  const auto refuse = [&](const std::string& what) {
    throw Error(
        ErrorCode::usage,
        fmt::format(
            "[pipeline split] expected the number of blocks for each of {} stages, {} blocks in all, such as \"{}\", got \"{}\": {}",
            stages, blocks, stages == 2 ? fmt::format("{},{}", blocks / 2, blocks - blocks / 2) : "1,4,4,1", text, what));
  };
  std::vector<u16> begins;
  i64 sum = 0;
  for (std::string_view rest = text;;) {
    const size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    i64 count = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), count);
    if (error != std::errc() || end != word.data() + word.size() || count < 1 || count > blocks)
      refuse(fmt::format("\"{}\" is not a valid number of blocks", word));
    begins.push_back(static_cast<u16>(sum));
    sum += count;
    if (sum > blocks) break;
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (sum != blocks) refuse(fmt::format("the numbers add up to {} blocks{}", sum, sum > blocks ? " or more" : ""));
  if (std::ssize(begins) != stages) refuse(fmt::format("this text has numbers for {} stages", begins.size()));
  return begins;
}

}  // namespace spillway::parallel
