// What a dead run left on a scratch path, by the first pages of its store's first file: read before anything is opened, moved or written,
// so that a start can refuse to leave it. Functions keep no state.
#pragma once
#include "offload/nvme_store.h"

namespace spillway::offload {

/// What a dead run left in the folder that its first --nvme path had, by that file's pages.
struct LeftStore {
  u64 layout_hash = 0;
  i64 persistent_tiles = 0;
  u32 stripes = 0;
  Durability durability = Durability::checkpoint;
  std::string record;  // of the newest commit that a restart could use, whose tiles are not read
};
/// None where there is no such commit. Errors: Error(io), Error(usage) for what is no file.
std::optional<LeftStore> left_store(const std::filesystem::path& folder, const std::string& boot_id = current_boot_id());

}  // namespace spillway::offload
