// Reads the first pages of the store that a dead run left on a scratch path, before anything is opened, moved or written, so that a start
// can refuse to discard that store. The functions keep no state.
#pragma once
#include "offload/nvme_store.h"

namespace spillway::offload {

/// Describes the store that a dead run left below its first --nvme path, as far as the first pages of the store's file tell.
struct LeftStore {
  u64 layout_hash = 0;
  i64 persistent_tiles = 0;
  u32 stripes = 0;
  Durability durability = Durability::checkpoint;
  std::string record;  // record of the newest commit that a restart could use; the tiles of that commit are not read
};
/// Returns the store that a dead run left in `folder`. Returns nothing if there is none, or if it holds no commit
/// that a restart could use. Errors: Error(io), Error(usage) if the path is not a regular file.
std::optional<LeftStore> left_store(const std::filesystem::path& folder, const std::string& boot_id = current_boot_id());

}  // namespace spillway::offload
