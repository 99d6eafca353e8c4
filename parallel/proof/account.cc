#include "parallel/proof/account.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "parallel/program/meetings.h"

namespace spillway::parallel {
namespace {

constexpr auto kNvme = static_cast<size_t>(offload::Tier::nvme);

size_t index(Lane lane) { return static_cast<size_t>(lane); }

double seconds(double us) { return us / 1e6; }

Resource own_resource(const Instruction& i) {
  switch (i.op) {
    case Op::Load:
      return Resource::data;
    case Op::Forward:
    case Op::Backward:
    case Op::BackwardInput:
    case Op::BackwardWeight:
      return Resource::compute;
    default:
      return meeting_of(i.op) == Meeting::none ? Resource::memory : Resource::ranks;
  }
}

bool moves_on_disk(const Instruction& i) { return i.read_bytes[kNvme] + i.written_bytes[kNvme] > 0; }

// Returns for how long the instruction waited for the disk. If an instruction copies memory, the wait that it recorded is the copy itself,
// so it does not count. The optimizer waits for the disk only.
double disk_us(const Instruction& i, const Timing& t) {
  const bool lands = i.op == Op::Land || i.op == Op::Commit;
  return moves_on_disk(i) || lands ? std::min(t.disk_us, t.end_us - t.start_us) : 0;
}

class Accounting {
 public:
  Accounting(const List& list, std::span<const Timing> timings) : list_(list), timings_(timings), before_(list.size()) {
    std::array<std::optional<u32>, kLanes> last;
    for (u32 i = 0; i < list.size(); ++i) {
      before_[i] = last[index(list[i].lane)];
      last[index(list[i].lane)] = i;
    }
    compute_end_ = last[index(Lane::compute)];
  }

  Account all() {
    for (u32 i = 0; i < list_.size(); ++i) {
      result_.busy_s[index(list_[i].lane)] += seconds(timings_[i].end_us - timings_[i].start_us);
      if (list_[i].lane == Lane::compute) await(i);
    }
    if (const auto end = latest(); end) finish(*end);
    return result_;
  }

 private:
  std::optional<u32> latest() const {
    const auto by_end = [](const Timing& a, const Timing& b) { return a.end_us < b.end_us; };
    const auto at = std::max_element(timings_.begin(), timings_.end(), by_end);
    return at == timings_.end() ? std::nullopt : std::optional(static_cast<u32>(at - timings_.begin()));
  }

  // Returns the instruction that determined when instruction i started: of all instructions for which i waits, the one that ended last.
  std::optional<u32> cause(u32 i) const {
    std::optional<u32> latest = before_[i];
    for (u32 after : list_[i].after) {
      if (!latest || timings_[after].end_us > timings_[*latest].end_us) latest = after;
    }
    return latest;
  }

  double end_us(std::optional<u32> i) const { return i ? timings_[*i].end_us : 0; }

  void await(u32 i) {
    const auto why = cause(i);
    if (why && list_[*why].lane != Lane::compute)
      result_.awaited_s[index(list_[*why].lane)] += seconds(std::max(0.0, timings_[i].start_us - end_us(before_[i])));
  }

  void finish(u32 end) {
    result_.seconds = seconds(timings_[end].end_us);
    if (list_[end].lane != Lane::compute) result_.awaited_s[index(list_[end].lane)] += seconds(timings_[end].end_us - end_us(compute_end_));
    for (std::optional<u32> i = end; i;) {
      const auto why = cause(*i);
      spend(*i, timings_[*i].end_us - end_us(why));
      i = why;
    }
  }

  // Adds to the critical path the time from the end of the instruction that caused instruction i to start, to the end of instruction i.
  void spend(u32 i, double us) {
    const double disk = std::min(us, disk_us(list_[i], timings_[i]));
    result_.chain_s[static_cast<size_t>(Resource::disk)] += seconds(disk);
    result_.chain_s[static_cast<size_t>(own_resource(list_[i]))] += seconds(us - disk);
  }

  const List& list_;
  const std::span<const Timing> timings_;
  std::vector<std::optional<u32>> before_;  // for each instruction: the one before it in its lane (instructions of one kind, run in order)
  std::optional<u32> compute_end_;
  Account result_;
};

}  // namespace

std::string_view to_string(Resource resource) {
  constexpr std::string_view kNames[] = {"compute", "memory", "disk", "data", "ranks"};
  return kNames[static_cast<size_t>(resource)];
}

Account& Account::operator+=(const Account& other) {
  seconds += other.seconds;
  for (size_t l = 0; l < kLanes; ++l) {
    busy_s[l] += other.busy_s[l];
    awaited_s[l] += other.awaited_s[l];
  }
  for (size_t r = 0; r < kResources; ++r) chain_s[r] += other.chain_s[r];
  return *this;
}

Resource Account::bound_by() const { return static_cast<Resource>(std::max_element(chain_s.begin(), chain_s.end()) - chain_s.begin()); }

Account account(const List& list, std::span<const Timing> timings) { return Accounting(list, timings).all(); }

}  // namespace spillway::parallel
