#include "trainer/node/cpu_lists.h"

#include <algorithm>
#include <charconv>

namespace spillway::trainer {
namespace {

constexpr size_t kLongestList = 4096;

// Reads a text from its begin to its end.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}
  bool done() const { return rest_.empty(); }
  bool take(char c) {
    const bool there = rest_.starts_with(c);
    if (there) rest_.remove_prefix(1);
    return there;
  }
  // Skips characters of `which` and returns whether there was one.
  bool skip(std::string_view which) {
    const size_t length = std::min(rest_.find_first_not_of(which), rest_.size());
    rest_.remove_prefix(length);
    return length > 0;
  }
  // Reads a whole number in [least, most]; returns nothing if none comes next.
  std::optional<int> number(int least, int most) {
    int value = 0;
    const auto read = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (read.ec != std::errc() || value < least || value > most) return std::nullopt;
    rest_.remove_prefix(static_cast<size_t>(read.ptr - rest_.data()));
    return value;
  }

 private:
  std::string_view rest_;
};

// The `count` members of a list that begins somewhere are `stride` apart.
struct Repeated {
  int count = 1, stride = 1;
};

// Reads ":count" or ":count:stride", or nothing, which is one member. Returns nothing for other text after a colon.
std::optional<Repeated> repeated(Reader& in) {
  if (!in.take(':')) return Repeated();
  const auto count = in.number(1, kMostCpus);
  const auto stride = count && in.take(':') ? in.number(-kMostCpus, kMostCpus) : std::optional(1);
  if (!count || !stride) return std::nullopt;
  return Repeated{*count, *stride};
}

CpuSet moved(const CpuSet& set, int by) { return by < 0 ? set >> static_cast<size_t>(-by) : set << static_cast<size_t>(by); }

// Reads a place such as "{0,1}" or "{0:4:2}", or a single CPU.
std::optional<CpuSet> place(Reader& in) {
  CpuSet all;
  const bool braces = in.take('{');
  do {
    const auto first = in.number(0, kMostCpus - 1);
    const auto times = first && braces ? repeated(in) : std::optional(Repeated());
    if (!first || !times) return std::nullopt;
    for (int i = 0; i < times->count; ++i) all |= moved(CpuSet(1), *first + i * times->stride);
  } while (braces && in.take(','));
  if (braces && !in.take('}')) return std::nullopt;
  return all;
}

}  // namespace

std::optional<CpuSet> parse_cpu_affinity(std::string_view text) {
  constexpr std::string_view kBetween = " \t,";
  if (text.size() > kLongestList) return std::nullopt;
  Reader in(text);
  CpuSet all;
  in.skip(kBetween);
  do {
    const auto first = in.number(0, kMostCpus - 1);
    const bool range = first && in.take('-');
    const auto last = range ? in.number(*first, kMostCpus - 1) : first;
    const auto stride = range && last && in.take(':') ? in.number(1, kMostCpus) : std::optional(1);
    if (!first || !last || !stride) return std::nullopt;
    for (int cpu = *first; cpu <= *last; cpu += *stride) all.set(static_cast<size_t>(cpu));
  } while (in.skip(kBetween) && !in.done());
  return in.done() ? std::optional(all) : std::nullopt;
}

std::optional<CpuSet> parse_places(std::string_view text) {
  if (text.size() > kLongestList) return std::nullopt;
  Reader in(text);
  CpuSet all;
  do {
    const auto first = place(in);
    const auto times = first ? repeated(in) : std::nullopt;
    if (!times) return std::nullopt;
    for (int i = 0; i < times->count; ++i) all |= moved(*first, i * times->stride);
  } while (in.take(','));
  return in.done() && all.any() ? std::optional(all) : std::nullopt;
}

}  // namespace spillway::trainer
