// DiskLoad is the workload with which a disk is measured, by `spillway bench` and by the code that divides data among the
// --nvme paths (shares.h). It reads or writes 1 MiB pieces of a file in order, with many transfers in flight, as the NVMe store
// does. For use by one thread. Throws Error(refused) if the disk has no room for the file, and Error(io) if a transfer fails.
#pragma once
#include <filesystem>
#include <vector>

#include "device/allocator.h"
#include "device/event.h"
#include "offload/io_engine.h"
#include "offload/scratch_file.h"

namespace spillway::trainer {

/// Creates a file of `bytes` in a new folder under `path`. The folder is removed at once while
/// the file stays open, so that nothing remains on the disk however the measurement ends.
offload::ScratchFile nameless_file(const std::filesystem::path& path, i64 bytes);

class DiskLoad {
 public:
  static constexpr i64 kPieceBytes = kMiB;
  static constexpr double kSteady = 0.05;
  enum class Mix { read, write, both };

  /// Creates a workload that keeps at most `in_flight` transfers under way at once. The buffers of the transfers are allocated from
  /// `memory`.
  DiskLoad(const offload::ScratchFile& file, offload::IoEngine& engine, Allocator& memory, i64 in_flight);
  ~DiskLoad();
  DiskLoad(const DiskLoad&) = delete;
  DiskLoad& operator=(const DiskLoad&) = delete;

  /// Writes every piece of the file once, because reading blocks that were never written does not touch the disk. Stops early
  /// once at least `least_pieces` pieces are written and `most_s` seconds have passed. Returns the number of pieces written.
  i64 fill(i64 least_pieces, double most_s);
  /// Reads or writes `count` pieces, as `mix` says, beginning with piece `first`. After piece
  /// `pieces` - 1 comes piece 0 again. With Mix::both every second transfer writes, to a piece that
  /// is `pieces` / 2 away from the piece being read. Returns the seconds that all transfers took.
  double move(Mix mix, i64 first, i64 count, i64 pieces);
  /// Reads or writes the first `pieces` pieces of the file over and over until the rate is steady. The rate is steady when four parts of 64
  /// pieces take the same time as the four parts before them, up to a share of kSteady. Stops at the latest after `most_pieces`, or after
  /// `most_s` seconds once four parts are done. Returns the bytes per second of the last four parts, so that an initial burst into the
  /// drive's cache does not count.
  double sustained(Mix mix, i64 pieces, i64 most_pieces, double most_s);

 private:
  void submit(bool write, i64 piece);
  void submit(Mix mix, i64 number, i64 pieces);
  void wait() const;
  void drain() noexcept;
  const offload::ScratchFile& file_;
  offload::IoEngine& engine_;
  Allocation buffer_;
  i64 next_ = 0;
  std::vector<Event> pending_;
};

}  // namespace spillway::trainer
