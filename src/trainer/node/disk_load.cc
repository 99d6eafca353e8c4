#include "trainer/node/disk_load.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>

#include "base/error.h"
#include "offload/scratch_folder.h"

namespace spillway::trainer {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

offload::ScratchFile nameless_file(const std::filesystem::path& path, i64 bytes) {
  offload::ScratchFolder own(path, fmt::format("bench-{}", ::getpid()));
  own.give_up();
  return offload::ScratchFile::create(own.path() / "file", bytes, false);
}

DiskLoad::DiskLoad(const offload::ScratchFile& file, offload::IoEngine& engine, Allocator& memory, i64 in_flight)
    : file_(file),
      engine_(engine),
      buffer_(memory.allocate(in_flight * kPieceBytes, "disk measurement: I/O buffer")),
      pending_(static_cast<size_t>(in_flight), Event::done()) {
  auto* words = reinterpret_cast<u64*>(buffer_.data());
  u64 noise = 1;  // state of the noise generator; the buffers hold noise, so that a drive that compresses data gains nothing
  for (i64 i = 0; i < buffer_.bytes() / 8; ++i) words[i] = noise = noise * 6364136223846793005u + 1442695040888963407u;
}

DiskLoad::~DiskLoad() { drain(); }

// Starts the transfer of one piece into or out of the buffer's next part. First waits until the earlier transfer of that part has finished.
void DiskLoad::submit(bool write, i64 piece) {
  Event& place = pending_[static_cast<size_t>(next_)];
  place.wait();
  place = engine_.submit({.file = &file_,
                          .write = write,
                          .offset = piece * kPieceBytes,
                          .bytes = kPieceBytes,
                          .buffer = buffer_.data() + next_ * kPieceBytes});
  next_ = (next_ + 1) % std::ssize(pending_);
}

void DiskLoad::wait() const {
  for (const Event& one : pending_) one.wait();
}

// Waits for all transfers under way, even if some of them failed, because they use the buffer.
void DiskLoad::drain() noexcept {
  for (const Event& one : pending_) {
    try {
      one.wait();
    } catch (const Error&) {  // wait() has already reported this error
    }
  }
}

i64 DiskLoad::fill(i64 least_pieces, double most_s) {
  const i64 pieces = file_.bytes() / kPieceBytes;
  const auto begin = Clock::now();
  i64 done = 0;
  while (done < pieces && (done < least_pieces || seconds_since(begin) < most_s)) submit(true, done++);
  wait();
  return done;
}

double DiskLoad::move(Mix mix, i64 first, i64 count, i64 pieces) {
  const auto begin = Clock::now();
  for (i64 i = 0; i < count; ++i) submit(mix, mix == Mix::both ? 2 * first + i : first + i, pieces);
  wait();
  return seconds_since(begin);
}

double DiskLoad::sustained(Mix mix, i64 pieces, i64 most_pieces, double most_s) {
  constexpr i64 kPart = 64, kParts = 4;
  const auto begin = Clock::now();
  std::vector<double> ends = {0};  // time in seconds at which each part ended
  const auto seconds_of_last = [&](i64 parts_back) {
    const size_t last = ends.size() - 1 - static_cast<size_t>(parts_back);
    return ends[last] - ends[last - static_cast<size_t>(kParts)];
  };
  const auto steady = [&] {
    return std::ssize(ends) > 2 * kParts && std::abs(seconds_of_last(0) / seconds_of_last(kParts) - 1) <= kSteady;
  };
  i64 done = 0;
  while (done < most_pieces && !steady() && (std::ssize(ends) <= kParts || ends.back() < most_s)) {
    submit(mix, done++, pieces);
    if (done % kPart == 0) ends.push_back(seconds_since(begin));
  }
  wait();
  const bool few = std::ssize(ends) <= kParts;
  return static_cast<double>((few ? done : kParts * kPart) * kPieceBytes) / (few ? seconds_since(begin) : seconds_of_last(0));
}

// Starts transfer `number`. After the last of `pieces` pieces the first follows again. With Mix::both
// every second transfer writes, to a piece that is `pieces` / 2 away from the piece being read.
void DiskLoad::submit(Mix mix, i64 number, i64 pieces) {
  if (mix != Mix::both) return submit(mix == Mix::write, number % pieces);
  const bool write = number % 2 == 1;
  submit(write, (number / 2 + (write ? pieces / 2 : 0)) % pieces);
}

}  // namespace spillway::trainer
