#include "trainer/ranks/rank_report.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace spillway::trainer {
namespace {

constexpr std::array kPhases = {"starting", "meeting the other ranks", "preparing", "training", "evaluating", "generating"};
constexpr size_t kLongestText = 60 << 10, kLongestPath = (4 << 10) - 64;

// Page is the report of one rank in shared memory. All bytes of a page are zero until the rank reports something.
struct Page {
  std::atomic<i64> step;
  std::atomic<int> phase, code;
  std::atomic<i64> text_bytes, path_bytes;
  alignas(64) char text[kLongestText], path[kLongestPath];
};
static_assert(std::atomic<i64>::is_always_lock_free && sizeof(Page) == kLongestText + kLongestPath + 64);

void write_failure(Page& page, const Failure& failure) {
  const size_t bytes = std::min(failure.text.size(), kLongestText);
  std::memcpy(page.text, failure.text.data(), bytes);
  page.code.store(static_cast<int>(failure.code));
  page.text_bytes.store(static_cast<i64>(bytes));
}

Page& page(const parallel::SharedMemory& memory, int rank) { return reinterpret_cast<Page*>(memory.bytes().data())[rank]; }

// Returns this rank's page of the memory that the environment variable SPILLWAY_REPORT names,
// or null without a supervising process. The memory stays mapped until the process ends.
Page* own_page() {
  static const std::optional<parallel::SharedMemory> memory = []() -> std::optional<parallel::SharedMemory> {
    const char* text = std::getenv("SPILLWAY_REPORT");
    int descriptor = -1, ranks = 0;
    if (text == nullptr || std::sscanf(text, "%d:%d", &descriptor, &ranks) != 2) return std::nullopt;
    return parallel::SharedMemory::of(Descriptor(descriptor), ranks * i64{sizeof(Page)});
  }();
  const char* rank = std::getenv("SPILLWAY_RANK");
  return memory && rank != nullptr ? &page(*memory, std::atoi(rank)) : nullptr;
}

}  // namespace

const char* to_string(RankPhase phase) { return kPhases[static_cast<size_t>(phase)]; }

RankReports::RankReports(int ranks) : memory_(parallel::SharedMemory::make(ranks * i64{sizeof(Page)})) {}

std::string RankReports::variable() const {
  return std::to_string(descriptor()) + ":" + std::to_string(memory_.bytes().size() / sizeof(Page));
}

RankPhase RankReports::phase(int rank) const {
  constexpr int kLast = static_cast<int>(kPhases.size()) - 1;
  return static_cast<RankPhase>(std::clamp(page(memory_, rank).phase.load(), 0, kLast));
}

i64 RankReports::step(int rank) const { return page(memory_, rank).step.load(); }

Failure RankReports::failure(int rank) const {
  const Page& told = page(memory_, rank);
  const auto bytes = static_cast<size_t>(std::clamp<i64>(told.text_bytes.load(), 0, kLongestText));
  return {static_cast<ErrorCode>(told.code.load()), std::string(told.text, bytes)};
}

std::string RankReports::log_file(int rank) const {
  const Page& told = page(memory_, rank);
  return {told.path, static_cast<size_t>(std::clamp<i64>(told.path_bytes.load(), 0, kLongestPath))};
}

void RankReports::set_failure(int rank, const Failure& failure) const { write_failure(page(memory_, rank), failure); }

void report_phase(RankPhase phase) {
  if (Page* own = own_page()) own->phase.store(static_cast<int>(phase));
}

void report_step(i64 step) {
  report_phase(RankPhase::training);
  if (Page* own = own_page()) own->step.store(step);
}

void report_log_file(const std::string& path) {
  Page* own = own_page();
  if (own == nullptr || path.size() > kLongestPath) return;
  std::memcpy(own->path, path.data(), path.size());
  own->path_bytes.store(static_cast<i64>(path.size()));
}

bool report_failure(const Failure& failure) {
  Page* own = own_page();
  if (own == nullptr) return false;
  write_failure(*own, failure);
  return true;
}

}  // namespace spillway::trainer
