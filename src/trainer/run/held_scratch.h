// Owns what an open session holds on the scratch paths: one folder on each path with the files of the nvme tier, the I/O engine, and the
// meter that counts its transfers. Only this class decides when such a folder is removed. Files that an earlier process left when it died
// stay until give_up() is called, even if an exception ends the session. Files that this session made are removed together with this
// object, unless keep() was called. Owned by the session; one thread.
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
    bool allow_network = false;  // set by --allow-network-nvme
    offload::IoEngineKind engine = offload::IoEngineKind::automatic;
    bool first_here = true;    // this is the node's first rank, which also removes the files that other ranks of the run left here
    bool recoverable = false;  // a restart could resume from what the files hold
    offload::SystemCalls* system = nullptr;  // system calls of the I/O engine; null means the real ones
  };
  /// Makes a folder on each path. If a dead process with the same `id` left its folder there, takes over that folder instead. Throws the
  /// errors of prepare_scratch, ScratchFolder and make_io_engine.
  HeldScratch(const NvmePaths& nvme, const ScratchId& id, const Options& options);

  /// Keeps the files when this object is destroyed, so that a restart finds them. If a restart could not use the files
  /// (Options::recoverable is false), they are removed instead.
  void keep();
  /// Declares the files of this rank useless, so that they are removed together with this object. With `for_good`, the node's first rank
  /// also removes at once the folders that other ranks of this run left on the paths, and the stores that were set aside.
  void give_up(bool for_good);

  std::vector<offload::StripePath> stripes() const;
  offload::IoEngine& engine() const { return *engine_.engine; }
  /// Returns the disk traffic since this object was made.
  DiskUse use() { return meter_->use(); }
  /// Returns a log line that names the folders of the nvme tier and the I/O engine.
  std::string text() const;
  /// If the filesystem of a scratch path cannot lock files, returns a warning that says what replaces the lock; else empty.
  std::string lock_notice() const;

 private:
  void take_folder(const std::string& path, const Options& options);

  const ScratchId id_;
  const std::vector<ScratchPath> paths_;
  const Shares shares_;
  const bool first_here_;
  const bool recoverable_;
  std::unique_ptr<DiskMeter> meter_;  // must outlive the engine, which calls it
  offload::ChosenEngine engine_;
  std::vector<offload::ScratchFolder> folders_;
  std::string others_, cached_;  // for the log: folders of ranks that no longer exist; paths without direct I/O
};

}  // namespace spillway::trainer
