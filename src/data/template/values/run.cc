#include "data/template/values/run.h"

#include <fmt/format.h>

#include <limits>

#include "base/error.h"
#include "data/template/values/value.h"

namespace spillway::data::chat {
namespace {

constexpr i64 kSteps = 10'000'000, kStepsPerByte = 16;
constexpr i64 kBytes = i64{64} << 20, kBytesPerByte = 32;
constexpr i64 kUnlimited = std::numeric_limits<i64>::max() / 2;
constexpr size_t kHeapBytes = 16;  // the bytes that the heap takes in addition for each allocation
constexpr size_t kLongestMessage = 2000;

constinit thread_local Run* current_run = nullptr;

// Shortens a message that is too long. A message may quote long words of a template.
std::string shortened(const std::string& what) {
  if (what.size() <= kLongestMessage) return what;
  size_t end = kLongestMessage;
  while (end > 0 && (static_cast<u8>(what[end]) & 0xC0) == 0x80) --end;
  return what.substr(0, end) + "…";
}

}  // namespace

void charge(size_t bytes) {
  if (current_run) current_run->hold(bytes + kHeapBytes);
}

void release(size_t bytes) noexcept {
  if (current_run) current_run->held_bytes_ -= static_cast<i64>(bytes + kHeapBytes);
}

Run::Current::Current(Run* run) : outer_(std::exchange(current_run, run)) {}

Run::Current::~Current() { current_run = outer_; }

Run::Run(const std::string& file, std::time_t now)
    : current_(this), file_(file), now_(now), steps_(kUnlimited), steps_left_(kUnlimited), most_bytes_(kUnlimited) {}

Run::~Run() {
  // The attributes of all namespaces are cleared first. Freeing one namespace
  // then never frees others, whether they form a cycle or a long chain.
  for (auto& space : spaces_) space->attributes.clear();
}

void Run::begin() {
  steps_ = steps_left_ = kSteps + kStepsPerByte * read_bytes_;
  most_bytes_ = held_bytes_ + kBytes + kBytesPerByte * read_bytes_;
}

void Run::fail(const std::string& what) const {
  if (message == 0) fail_at(file_, line, what);
  throw Error(ErrorCode::data, fmt::format("[chat template] {}, line {}, message {}: {}", file_, line, message, shortened(what)));
}

void Run::hold(size_t bytes) {
  if (bytes > static_cast<size_t>(most_bytes_ - held_bytes_))
    fail(
        fmt::format("expected a rendering that holds at most {} bytes at once, got one that needs more: its texts and lists grow too large",
                    most_bytes_));
  spend_bytes(bytes);
  held_bytes_ += static_cast<i64>(bytes);
}

void Run::fail_steps() const { fail(fmt::format("expected a rendering of at most {} steps, got a longer one", steps_)); }

Space* Run::new_space() {
  spend(100);
  return spaces_.emplace_back(std::make_unique<Space>()).get();
}

void fail_at(const std::string& file, int line, const std::string& what) {
  throw Error(ErrorCode::data, fmt::format("[chat template] {}, line {}: {}", file, line, shortened(what)));
}

}  // namespace spillway::data::chat
