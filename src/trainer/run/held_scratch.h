// HeldScratch owns what an open session has on the scratch paths: one folder on each path with the files of the nvme tier, the
// I/O engine, and the meter that counts the engine's transfers. Only this class decides when such a folder is removed. Files
// that an earlier process left when it died stay until give_up() is called, even if an exception ends the session. Files that
// this session made are removed together with the object, unless keep() was called. Owned by the session; for use by one thread.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "offload/io_engine.h"
#include "offload/nvme_store.h"
#include "offload/scratch_folder.h"
#include "trainer/node/disk_meter.h"
#include "trainer/plan/nvme_paths.h"

namespace spillway::trainer {

class HeldScratch {
 public:
  struct Options {
    bool allow_network = false;  // true with --allow-network-nvme
    offload::IoEngineKind engine = offload::IoEngineKind::automatic;
    bool first_here = true;    // true for the node's first rank, which also removes files of other ranks of the run on this node
    bool recoverable = false;  // true if a restart could resume from the contents of the nvme files
    offload::SystemCalls* system = nullptr;  // system calls of the I/O engine, which a test may replace; null: the real ones
  };
  /// Makes a folder on each path. If a dead process with the same `id` left its folder there, that
  /// folder is used instead. Throws the errors of prepare_scratch, ScratchFolder and make_io_engine.
  HeldScratch(const NvmePaths& nvme, const ScratchId& id, const Options& options);

  /// Leaves the files in place when this object is destroyed, so that a restart finds them. If a
  /// restart could not use the files (Options::recoverable is false), they are removed nevertheless.
  void keep();
  /// Declares the files of this rank useless, so that they are removed together with this object. With `for_good`, the node's first
  /// rank also removes at once the folders that other ranks of this run left on the paths, and folders that were renamed to keep them.
  void give_up(bool for_good);

  std::vector<offload::StripePath> stripes() const;
  offload::IoEngine& engine() const { return *engine_.engine; }
  /// Returns the disk traffic since this object was made.
  DiskUse use() { return meter_->use(); }
  /// Returns a log line that names the folders of the nvme tier and the I/O engine.
  std::string text() const;
  /// Returns a warning if the filesystem of a scratch path cannot lock files. The
  /// warning says what replaces the lock. The result is empty if all filesystems can.
  std::string lock_notice() const;

 private:
  void take_folder(const std::string& path, const Options& options);

  const ScratchId id_;
  const std::vector<ScratchPath> paths_;
  const Shares shares_;
  const bool first_here_;
  const bool recoverable_;
  std::unique_ptr<DiskMeter> meter_;  // the engine calls the meter, so the meter must outlive it
  offload::ChosenEngine engine_;
  std::vector<offload::ScratchFolder> folders_;
  std::string others_, cached_;  // texts for the log: folders of ranks that no longer exist, and paths without direct I/O
};

}  // namespace spillway::trainer
