#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "app/bench.h"
#include "base/error.h"
#include "base/units.h"
#include "device/stream.h"
#include "offload/file.h"
#include "offload/run_folder.h"
#include "offload/scratch.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr i64 kPieceBytes = kMiB;
// More than the queue holds, so that it never runs dry while the next is handed in.
constexpr i64 kInFlight = 2 * offload::kQueueDepth;
constexpr i64 kLeastFileBytes = 16 * kMiB, kLeastRoundBytes = 64 * kMiB;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

i64 file_bytes(const BenchSize& size, const ScratchPath& path, i64 free_bytes) {
  const i64 bytes = std::min({size.disk_bytes, free_bytes / 4, path.bytes.value_or(size.disk_bytes)}) / kPieceBytes * kPieceBytes;
  if (bytes >= kLeastFileBytes) return bytes;
  throw Error(ErrorCode::refused, fmt::format("[bench] expected room for a file of {} in {} within a quarter of what is free, which is {}: "
                                              "free some, or give another --nvme",
                                              format_bytes(kLeastFileBytes), path.path, format_bytes(free_bytes)));
}

// Its name goes with its folder at once, so that nothing stays behind however bench ends.
offload::File nameless_file(const fs::path& folder, i64 bytes) {
  const offload::RunFolder own(folder, fmt::format("bench-{}", ::getpid()));
  return offload::File::create(own.path() / "file", bytes, false);
}

// Moves pieces of a file in order, many in flight; a place of the buffer is used again when its piece is done.
class Mover {
 public:
  Mover(const offload::File& file, offload::IoEngine& engine)
      : file_(file), engine_(engine), buffer_(Stream::current().memory->allocate(kInFlight * kPieceBytes, "bench: I/O buffer")) {
    auto* words = reinterpret_cast<u64*>(buffer_.data());
    u64 noise = 1;  // a drive that compresses must not see that it could
    for (i64 i = 0; i < buffer_.bytes() / 8; ++i) words[i] = noise = noise * 6364136223846793005u + 1442695040888963407u;
  }
  ~Mover() { drain(); }
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  void submit(bool write, i64 piece) {
    Event& place = pending_[static_cast<size_t>(next_)];
    place.wait();
    place = engine_.submit({.file = &file_,
                            .write = write,
                            .offset = piece * kPieceBytes,
                            .bytes = kPieceBytes,
                            .buffer = buffer_.data() + next_ * kPieceBytes});
    next_ = (next_ + 1) % kInFlight;
  }
  void wait() const {
    for (const Event& one : pending_) one.wait();
  }

 private:
  // The buffer must outlive what is under way, also when a part of it failed.
  void drain() noexcept {
    for (const Event& one : pending_) {
      try {
        one.wait();
      } catch (const Error&) {  // told by wait() already
      }
    }
  }
  const offload::File& file_;
  offload::IoEngine& engine_;
  Allocation buffer_;
  i64 next_ = 0;
  std::vector<Event> pending_ = std::vector<Event>(kInFlight, Event::done());
};

// Writes every piece once, for blocks never written are not read from the disk; gives the pieces written in time.
i64 fill(Mover& mover, i64 pieces, double most_s, double& seconds) {
  const auto begin = Clock::now();
  i64 done = 0;
  while (done < pieces && (done * kPieceBytes < kLeastFileBytes || seconds_since(begin) < most_s)) mover.submit(true, done++);
  mover.wait();
  seconds = seconds_since(begin);
  return done;
}

enum class Mix { read, write, both };

// `count` pieces from `first` on, in a ring of `pieces`; of both, writes run half a ring away from reads. Seconds.
double move(Mover& mover, Mix mix, i64 first, i64 count, i64 pieces) {
  const auto begin = Clock::now();
  for (i64 i = 0; i < count; ++i) {
    const bool write = mix == Mix::write || (mix == Mix::both && i % 2 == 1);
    const i64 step = mix == Mix::both ? i / 2 : i, away = mix == Mix::both && write ? pieces / 2 : 0;
    mover.submit(write, (first + step + away) % pieces);
  }
  mover.wait();
  return seconds_since(begin);
}

}  // namespace

std::vector<BenchRow> bench_disk(const BenchSize& size, const ScratchPath& path, offload::IoEngine& engine) {
  const offload::ScratchInfo scratch = offload::prepare_scratch(path.path, true);
  const offload::File file = nameless_file(path.path, file_bytes(size, path, scratch.free_bytes));
  Mover mover(file, engine);
  double fill_s = 0;
  const i64 pieces = fill(mover, file.bytes() / kPieceBytes, size.disk_fill_s, fill_s);
  const double in_a_round = static_cast<double>(pieces) / fill_s * 2 * size.round_s;
  const i64 count = std::clamp<i64>(static_cast<i64>(in_a_round), std::min(pieces, kLeastRoundBytes / kPieceBytes), pieces);
  constexpr std::pair<const char*, Mix> kMixes[] = {{"disk.read", Mix::read}, {"disk.write", Mix::write}, {"disk.mixed", Mix::both}};
  std::vector<std::vector<double>> rates(std::size(kMixes));
  for (i64 round = 0; round < size.rounds; ++round) {
    for (size_t i = 0; i < rates.size(); ++i)
      rates[i].push_back(static_cast<double>(count * kPieceBytes) / move(mover, kMixes[i].second, round * count, count, pieces));
  }
  std::vector<BenchRow> rows;
  for (size_t i = 0; i < rates.size(); ++i) {
    std::ranges::sort(rates[i]);
    rows.push_back({.name = kMixes[i].first,
                    .path = fs::canonical(path.path).string(),
                    .value = rates[i][rates[i].size() / 2],
                    .unit = "bytes/s",
                    .ceiling = {},
                    .threads = Stream::current().thread_count()});
  }
  return rows;
}

}  // namespace spillway::app
