#include "trainer/run/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "data/files/file.h"

namespace spillway::trainer {
namespace {

constexpr int kDiskRead = parallel::kLanes, kDiskWrite = kDiskRead + 1;

std::string complete_event(int process, int lane, const std::string& name, double begin_us, double end_us, const std::string& arguments) {
  return fmt::format(R"({{"ph":"X","pid":{},"tid":{},"name":"{}","ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})", process, lane, name, begin_us,
                     end_us - begin_us, arguments);
}

std::string name_of(const parallel::Instruction& i) {
  std::string name(to_string(i.op));
  if (i.what != parallel::What::none) name += fmt::format(" {}", to_string(i.what));
  if (i.block != parallel::kNone) name += fmt::format(" block {}", i.block);
  if (i.group != parallel::kNone) name += fmt::format(" group {}", i.group);
  if (i.bucket != parallel::kNone) name += fmt::format(" bucket {}", i.bucket);
  if (i.micro_batch != parallel::kNone) name += fmt::format(" micro-batch {}", i.micro_batch);
  return name;
}

std::string bytes_of(const parallel::Instruction& i) {
  std::string text;
  for (size_t t = 0; t < offload::kTiers; ++t) {
    const auto add = [&](const char* way, i64 bytes) {
      if (bytes > 0)
        text +=
            fmt::format(R"({}"{} {} bytes":{})", text.empty() ? "" : ",", offload::to_string(static_cast<offload::Tier>(t)), way, bytes);
    };
    add("read", i.read_bytes[t]);
    add("written", i.written_bytes[t]);
  }
  return text;
}

}  // namespace

i64 DiskWatch::bytes_to_request(const offload::Transfer& t) {
  std::lock_guard lock(mutex_);
  begun_[{t.descriptor, t.offset, t.write}] = Clock::now();
  return t.bytes;
}

i64 DiskWatch::completed(const offload::Transfer& t, i64 result) {
  std::lock_guard lock(mutex_);
  const auto begun = begun_.extract({t.descriptor, t.offset, t.write});
  if (!begun.empty() && result > 0) done_.push_back({t.write, result, begun.mapped(), Clock::now()});
  return result;
}

std::vector<DiskWatch::Transfer> DiskWatch::take() {
  std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

void Trace::add_list(const parallel::List& list, const std::vector<parallel::Timing>& timings, Clock::time_point begin) {
  const double base_us = us(begin);
  for (size_t n = 0; n < timings.size(); ++n) {
    const parallel::Instruction& i = list[n];
    events_.push_back(complete_event(process(), static_cast<int>(i.lane), name_of(i), base_us + timings[n].start_us,
                                     base_us + timings[n].end_us, bytes_of(i)));
    constexpr auto kHost = static_cast<size_t>(offload::Tier::host);
    if (i.read_bytes[kHost] + i.written_bytes[kHost] > 0)
      add_counter(base_us + timings[n].end_us, offload::Tier::host, i.read_bytes[kHost], i.written_bytes[kHost]);
  }
}

// Adds an event for each stretch of time in which the disk was busy. Overlapping transfers
// are merged into one event, because one row of the trace can show only one event at a time.
void Trace::add_disk() {
  std::vector<DiskWatch::Transfer> all = watch_.take();
  for (const DiskWatch::Transfer& t : all) add_counter(us(t.end), offload::Tier::nvme, t.write ? 0 : t.bytes, t.write ? t.bytes : 0);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return std::tie(a.write, a.begin) < std::tie(b.write, b.begin); });
  for (size_t n = 0; n < all.size();) {
    DiskWatch::Transfer busy = all[n];
    i64 transfers = 1;
    while (++n < all.size() && all[n].write == busy.write && all[n].begin <= busy.end) {
      busy.end = std::max(busy.end, all[n].end);
      busy.bytes += all[n].bytes;
      ++transfers;
    }
    events_.push_back(complete_event(process(), busy.write ? kDiskWrite : kDiskRead, busy.write ? "write" : "read", us(busy.begin),
                                     us(busy.end), fmt::format(R"("bytes":{},"transfers":{})", busy.bytes, transfers)));
  }
}

void Trace::add_counter(double at_us, offload::Tier tier, i64 read_bytes, i64 written_bytes) {
  const auto t = static_cast<size_t>(tier);
  moved_.read[t] += read_bytes;
  moved_.written[t] += written_bytes;
  events_.push_back(fmt::format(R"({{"ph":"C","pid":{},"name":"{} bytes","ts":{:.3f},"args":{{"read":{},"written":{}}}}})", process(),
                                offload::to_string(tier), at_us, moved_.read[t], moved_.written[t]));
}

void Trace::step(i64 step, const parallel::Rank& rank) {
  // drops the transfers that were completed before the trace
  if (step + 1 == steps_.first || (step == steps_.first && steps_.first == 1)) watch_.take();
  if (step < steps_.first || step > steps_.last) return;
  if (step == steps_.first) zero_ = rank.head_begin();
  add_list(*rank.last_head(), rank.head_timings(), rank.head_begin());
  add_list(*rank.last_tail(), rank.tail_timings(), rank.tail_begin());
  add_disk();
  if (step == steps_.last) write();
}

// Returns the events that name the rows of this rank in the trace.
std::string Trace::lanes() const {
  std::string text;
  if (peers_.ranks() > 1)
    text +=
        fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":"{}"}}}},)", process(), peers_.name(peers_.rank())) + '\n';
  for (int lane = 0; lane <= kDiskWrite; ++lane) {
    const std::string name = lane < parallel::kLanes ? std::string(to_string(static_cast<parallel::Lane>(lane)))
                             : lane == kDiskRead     ? "disk read"
                                                     : "disk write";
    text += fmt::format(R"({{"ph":"M","pid":{2},"tid":{0},"name":"thread_name","args":{{"name":"{1}"}}}},)", lane, name, process()) + '\n';
    text +=
        fmt::format(R"({{"ph":"M","pid":{1},"tid":{0},"name":"thread_sort_index","args":{{"sort_index":{0}}}}},)", lane, process()) + '\n';
  }
  return text;
}

void Trace::write() const {
  const std::vector<std::string> ranks = peers_.gather(lanes() + fmt::format("{}", fmt::join(events_, ",\n")));
  peers_.together([&] {
    if (!peers_.first()) return;
    try {
      data::replace_text(path_, fmt::format("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}\n]}}\n", fmt::join(ranks, ",\n")));
    } catch (const Error&) {
      throw Error(ErrorCode::io, fmt::format("[trace] {} cannot be written: give --trace another file", path_.string()));
    }
  });
}

}  // namespace spillway::trainer
