#include "offload/commit_log.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "base/error.h"

namespace spillway::offload {
namespace {

u32 crc_of(const Superblock& superblock) { return crc32c(std::as_bytes(std::span(&superblock, 1)).first(offsetof(Superblock, crc))); }

i64 superblock_offset(u64 number) { return kSuperblockOffset + static_cast<i64>(number % kSuperblocks) * kPageBytes; }

}  // namespace

bool is_whole(const Superblock& superblock) {
  return std::memcmp(superblock.magic, kSuperblockMagic, sizeof kSuperblockMagic) == 0 && crc_of(superblock) == superblock.crc;
}

bool is_blank(const Superblock& superblock) {
  for (const std::byte byte : std::as_bytes(std::span(&superblock, 1))) {
    if (byte != std::byte{0}) return false;
  }
  return true;
}

bool written_in(const Superblock& superblock, std::string_view boot_id) {
  const std::string_view its_own(superblock.boot_id, ::strnlen(superblock.boot_id, sizeof superblock.boot_id));
  return !boot_id.empty() && its_own == boot_id;
}

CommitLog::CommitLog(StoreFiles& files, Durability durability, std::string boot_id)
    : files_(files),
      durability_(durability),
      boot_id_(std::move(boot_id)),
      table_(static_cast<size_t>(table_bytes(files.persistent_tiles()) / kPageBytes)) {}

std::span<u32> CommitLog::table() { return {reinterpret_cast<u32*>(table_.data()), static_cast<size_t>(files_.persistent_tiles())}; }

// Returns why the commit of this superblock cannot be used. Returns an empty string if it can; table() then holds the commit's checksums.
std::string CommitLog::objection(const Superblock& superblock, u64 page) {
  if (!is_whole(superblock) || superblock.record_bytes > kMaxRecordBytes) return "is damaged";
  if (superblock.store_id != files_.store_id() || superblock.number % kSuperblocks != page) return "belongs to another store";
  if (durability_ != Durability::step && !written_in(superblock, boot_id_))
    return "is from before a reboot, after which nvme data is valid only with --durability step";
  files_.read(table_offset(files_.persistent_tiles(), superblock.generation % 2), pages());
  if (crc32c(pages()) != superblock.table_crc) return "has a damaged checksum table";
  return {};
}

std::optional<Commit> CommitLog::recover(u64 newest_generation, std::string& why) {
  std::array<Superblock, kSuperblocks> found{};
  for (u64 page = 0; page < kSuperblocks; ++page) {
    files_.read(superblock_offset(page), std::as_writable_bytes(std::span(&found[page], 1)));
  }
  why.clear();
  const u64 newer = found[1].number > found[0].number ? 1 : 0;
  for (const u64 page : {newer, 1 - newer}) {
    const Superblock& superblock = found[page];
    if (is_blank(superblock)) continue;
    if (superblock.generation > newest_generation) {
      why = "the last commit belongs to a step that not all ranks finished";
      spoil(page);
      continue;
    }
    const std::string reason = objection(superblock, page);
    if (!reason.empty() && why.empty()) why = "the last commit " + reason;
    if (!reason.empty()) continue;
    number_ = superblock.number;
    why.clear();
    return Commit{superblock.generation, std::string(superblock.record, superblock.record_bytes)};
  }
  if (why.empty()) why = "the files of the earlier start contain no committed step";
  return std::nullopt;
}

void CommitLog::commit(u64 generation, std::string_view record, bool same_table) {
  if (durability_ == Durability::step) files_.flush();
  if (!same_table) files_.write(table_offset(files_.persistent_tiles(), generation % 2), pages());
  Superblock superblock{};
  std::memcpy(superblock.magic, kSuperblockMagic, sizeof kSuperblockMagic);
  superblock.store_id = files_.store_id();
  superblock.number = number_ + 1;
  superblock.generation = generation;
  superblock.table_crc = crc32c(pages());
  superblock.record_bytes = static_cast<u32>(record.size());
  boot_id_.copy(superblock.boot_id, kMaxBootIdBytes);
  record.copy(superblock.record, kMaxRecordBytes);
  superblock.crc = crc_of(superblock);
  files_.write(superblock_offset(superblock.number), std::as_bytes(std::span(&superblock, 1)));
  if (durability_ == Durability::step) files_.flush_first();
  number_ = superblock.number;
}

void CommitLog::clear() {
  for (const u64 number : {number_ + 1, number_}) spoil(number % kSuperblocks);
}

void CommitLog::spoil(u64 page) {
  const Superblock blank{};
  files_.write(superblock_offset(page), std::as_bytes(std::span(&blank, 1)));
  files_.flush_first();
}

}  // namespace spillway::offload
