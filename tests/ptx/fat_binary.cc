#include "ptx/fat_binary.h"

#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace ptx {
namespace {

// The layout is not documented; this is what fatbinary of CUDA 13 writes.
struct Wrapper {
  std::uint32_t magic, version;
  const std::uint8_t* data;
  const void* more;
};
struct Header {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t bytes;  // of all entries
};
struct Entry {
  std::uint16_t kind, version;  // kind 1: PTX; 2: machine code
  std::uint32_t header_bytes;
  std::uint64_t bytes;  // of the payload, with padding
  std::uint32_t packed_bytes, unused;
  std::uint32_t minor_version, major_version, architecture, name_at, name_bytes;
  std::uint32_t flags[3];
  std::uint64_t zero, unpacked_bytes;
};
constexpr std::uint32_t kMagic = 0xBA55ED50, kZstdMagic = 0xFD2FB528;

std::string text_of(const Entry& entry, const std::uint8_t* payload) {
  if (entry.packed_bytes == 0) return {reinterpret_cast<const char*>(payload), entry.bytes};
  std::uint32_t magic = 0;
  std::memcpy(&magic, payload, sizeof magic);
  const unsigned long long bytes = magic == kZstdMagic ? ZSTD_getFrameContentSize(payload, entry.packed_bytes) : ZSTD_CONTENTSIZE_ERROR;
  if (bytes == ZSTD_CONTENTSIZE_ERROR || bytes == ZSTD_CONTENTSIZE_UNKNOWN)
    throw std::runtime_error("PTX that is not compressed by zstd: give nvcc --no-compress");
  std::string text(bytes, '\0');
  if (ZSTD_isError(ZSTD_decompress(text.data(), text.size(), payload, entry.packed_bytes)) != 0)
    throw std::runtime_error("compressed PTX that zstd cannot unpack");
  return text;
}

}  // namespace

std::string ptx_of(const void* wrapper) {
  const std::uint8_t* at = static_cast<const Wrapper*>(wrapper)->data;
  Header header;
  std::memcpy(&header, at, sizeof header);
  if (header.magic != kMagic) throw std::runtime_error("a fat binary with an unknown magic number");
  at += header.header_bytes;
  for (const std::uint8_t* const end = at + header.bytes; at < end;) {
    Entry entry;
    std::memcpy(&entry, at, sizeof entry);
    if (entry.kind == 1) {
      const std::string text = text_of(entry, at + entry.header_bytes);
      return text.substr(0, text.find('\0'));
    }
    at += entry.header_bytes + entry.bytes;
  }
  return "";
}

}  // namespace ptx
