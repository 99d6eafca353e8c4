// What `bench` and the shares of the --nvme paths (shares.h) measure a disk with: 1 MiB pieces of a file in order, many in flight, as the
// store moves its own. One thread. Errors: Error(refused) without room for the file, Error(io).
#pragma once
#include <filesystem>
#include <vector>

#include "device/allocator.h"
#include "device/event.h"
#include "offload/io_engine.h"
#include "offload/scratch_file.h"

namespace spillway::app {

/// In a folder of its own under `path` whose name goes at once, so that nothing stays behind however the measurement ends.
offload::ScratchFile nameless_file(const std::filesystem::path& path, i64 bytes);

class DiskLoad {
 public:
  static constexpr i64 kPieceBytes = kMiB;
  static constexpr double kSteady = 0.05;
  enum class Mix { read, write, both };

  /// `in_flight` pieces are handed in before the first is waited for; their buffers come from `memory`.
  DiskLoad(const offload::ScratchFile& file, offload::IoEngine& engine, Allocator& memory, i64 in_flight);
  ~DiskLoad();
  DiskLoad(const DiskLoad&) = delete;
  DiskLoad& operator=(const DiskLoad&) = delete;

  /// Writes every piece once, for blocks never written are not read from the disk, but at least `least_pieces` and then no longer than
  /// `most_s`. Gives the pieces written.
  i64 fill(i64 least_pieces, double most_s);
  /// `count` pieces from `first` on, in a ring of `pieces`; of both, writes run half a ring away from reads. Seconds.
  double move(Mix mix, i64 first, i64 count, i64 pieces);
  /// Moves pieces of the first `pieces` until the rate is steady (the last four parts of 64 pieces within kSteady of the four before them),
  /// at most `most_pieces` and no longer than `most_s` once four parts are done. Gives the bytes a second of the last four parts: what a
  /// cache of the drive took at first does not count.
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

}  // namespace spillway::app
