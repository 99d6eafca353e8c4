#include "offload/left_store.h"

#include "offload/commit_log.h"
#include "offload/store_look.h"

namespace spillway::offload {

std::optional<LeftStore> left_store(const std::filesystem::path& folder, const std::string& boot_id) {
  const Found found = look(folder);
  if (found.kind != Found::Kind::store || found.header.version != kStoreVersion || found.header.stripe != 0) return {};
  const bool durable = found.header.durability == static_cast<u32>(Durability::step);
  const Superblock* newest = nullptr;
  for (const Superblock& superblock : found.superblocks) {
    const bool counts = is_whole(superblock) && superblock.store_id == found.header.store_id &&
                        superblock.record_bytes <= kMaxRecordBytes && (durable || written_in(superblock, boot_id));
    if (counts && (newest == nullptr || superblock.number > newest->number)) newest = &superblock;
  }
  if (newest == nullptr) return {};
  return LeftStore{.layout_hash = found.header.layout_hash,
                   .persistent_tiles = found.header.persistent_tiles,
                   .stripes = found.header.stripes,
                   .durability = static_cast<Durability>(found.header.durability),
                   .record = std::string(newest->record, newest->record_bytes)};
}

}  // namespace spillway::offload
