#include "data/tokens/token_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"

namespace spillway::data {
namespace {

[[noreturn]] void reject(const File& file, const std::string& why) {
  throw Error(ErrorCode::data, fmt::format("[token file] {}: {}", file.path().string(), why));
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

TokenLayout llmc_layout(const File& file, const std::array<std::byte, 16>& head, u32 wanted_version, int width_bytes) {
  const auto version = load<u32>(head.data() + 4);
  if (version != wanted_version) {
    reject(file, fmt::format("expected version {} of llm.c's format, got {}", wanted_version, version));
  }
  const u64 tokens = load<u32>(head.data() + 8) | static_cast<u64>(load<u32>(head.data() + 12)) << 32;
  const i64 data_bytes = file.size_bytes() - kLlmcHeaderBytes;
  if (data_bytes < 0)
    reject(file, fmt::format("expected a header of {} bytes, but the whole file has only {} bytes", kLlmcHeaderBytes, file.size_bytes()));
  if (data_bytes % width_bytes != 0 || tokens != static_cast<u64>(data_bytes / width_bytes)) {
    reject(file, fmt::format("the header says {} tokens of {} bytes each, but {} bytes follow: the file is cut short, or was not finished",
                             tokens, width_bytes, data_bytes));
  }
  return {kLlmcHeaderBytes, static_cast<i64>(tokens), width_bytes, false};
}

TokenLayout headerless_layout(const File& file) {
  if (file.size_bytes() % 2 != 0) {
    reject(file,
           fmt::format("expected headerless uint16 tokens (no llm.c header, no .idx beside it), got a file with an odd number of bytes: {}",
                       file.size_bytes()));
  }
  return {0, file.size_bytes() / 2, 2, false};
}

constexpr std::string_view kMegatronMagic("MMIDIDX\0\0", 9);
constexpr i64 kMegatronHeaderBytes = 9 + 8 + 1 + 8 + 8;

struct MegatronType {
  int code, width_bytes;
  bool is_signed;
};
constexpr std::array kMegatronTypes = {MegatronType{1, 1, false}, MegatronType{3, 2, true}, MegatronType{4, 4, true},
                                       MegatronType{5, 8, true}, MegatronType{8, 2, false}};

// Counts the tokens of a Megatron index. The sequences must lie one after the other without
// gaps, as Megatron's own tools write them. All tokens are then contiguous in the .bin file, and
// the two tables of sizes and offsets, which may take gigabytes, need not be kept in memory.
i64 checked_tokens(const File& index, i64 sequences, i64 most_tokens, int width_bytes) {
  constexpr i64 kStep = 2048;
  std::array<std::byte, kStep * 4> sizes;
  std::array<std::byte, kStep * 8> offsets;
  i64 tokens = 0;
  for (i64 at = 0; at < sequences; at += kStep) {
    const i64 n = std::min(kStep, sequences - at);
    index.read(kMegatronHeaderBytes + at * 4, std::span(sizes).first(static_cast<size_t>(n * 4)));
    index.read(kMegatronHeaderBytes + sequences * 4 + at * 8, std::span(offsets).first(static_cast<size_t>(n * 8)));
    for (i64 i = 0; i < n; ++i) {
      const auto size = load<i32>(sizes.data() + i * 4);
      const auto offset = load<i64>(offsets.data() + i * 8);
      if (size < 0) reject(index, fmt::format("sequence {} has the negative size {}", at + i, size));
      if (offset != tokens * width_bytes) {
        reject(index, fmt::format("sequence {} begins at byte {}, expected {}, where the sequence before ends", at + i, offset,
                                  tokens * width_bytes));
      }
      tokens += size;
      if (tokens > most_tokens) reject(index, fmt::format("sequence {} ends after the {} tokens of the .bin file", at + i, most_tokens));
    }
  }
  return tokens;
}

TokenLayout megatron_layout(const File& file, const File& index) {
  std::array<std::byte, kMegatronHeaderBytes> head;
  if (index.size_bytes() < kMegatronHeaderBytes)
    reject(index, fmt::format("the file has {} bytes, which is too few for an index", index.size_bytes()));
  index.read(0, head);
  if (std::memcmp(head.data(), kMegatronMagic.data(), kMegatronMagic.size()) != 0) {
    reject(index, "the file lies beside a .bin of the same name, but is not a Megatron index (MMIDIDX)");
  }
  if (const auto version = load<u64>(head.data() + 9); version != 1)
    reject(index, fmt::format("expected version 1 of Megatron's index format, got {}", version));
  const int code = std::to_integer<int>(head[17]);
  const auto type = std::ranges::find(kMegatronTypes, code, &MegatronType::code);
  if (type == kMegatronTypes.end()) reject(index, fmt::format("the dtype code {} does not stand for an integer type", code));
  const auto sequences = load<u64>(head.data() + 18), documents = load<u64>(head.data() + 26);
  const u64 body = static_cast<u64>(index.size_bytes() - kMegatronHeaderBytes);
  if (sequences > body / 12 || documents > body / 8 || sequences * 12 + documents * 8 != body) {
    reject(index, fmt::format("{} sequences and {} documents do not make an index of {} bytes, the size of this file", sequences, documents,
                              index.size_bytes()));
  }
  const i64 tokens = checked_tokens(index, static_cast<i64>(sequences), file.size_bytes() / type->width_bytes, type->width_bytes);
  if (tokens != file.size_bytes() / type->width_bytes || file.size_bytes() % type->width_bytes != 0) {
    reject(file, fmt::format("the index says {} tokens of {} bytes each, but the file has {} bytes", tokens, type->width_bytes,
                             file.size_bytes()));
  }
  return {0, tokens, type->width_bytes, type->is_signed};
}

// Throws if the file begins with zeros instead of a header. Earlier versions wrote the header
// last, into the file itself, so a file from such a version that was killed begins with zeros.
void refuse_unfinished(const File& file) {
  std::array<std::byte, kLlmcHeaderBytes> head;
  if (file.size_bytes() < kLlmcHeaderBytes) return;
  file.read(0, head);
  if (std::ranges::any_of(head, [](std::byte b) { return b != std::byte{0}; })) return;
  reject(file, fmt::format("expected a header or tokens, got {} bytes of zeros at the beginning: the program that wrote the file was "
                           "interrupted; write the file again",
                           kLlmcHeaderBytes));
}

}  // namespace

bool begins_as_token_file(const File& file) {
  std::array<std::byte, 8> head{};
  if (file.size_bytes() == 0) return true;
  if (file.size_bytes() >= std::ssize(head)) file.read(0, head);
  const auto magic = load<u32>(head.data()), version = load<u32>(head.data() + 4);
  return (magic == kLlmcMagic16 && version == kLlmcVersion16) || (magic == kLlmcMagic32 && version == kLlmcVersion32);
}

TokenLayout token_layout(const File& file) {
  if (auto beside = file.path(); std::filesystem::exists(beside.replace_extension(".idx")))
    return megatron_layout(file, File::open(beside));
  std::array<std::byte, 16> head{};
  if (file.size_bytes() >= static_cast<i64>(head.size())) file.read(0, head);
  const auto magic = load<u32>(head.data());
  if (magic == kLlmcMagic16) return llmc_layout(file, head, kLlmcVersion16, 2);
  if (magic == kLlmcMagic32) return llmc_layout(file, head, kLlmcVersion32, 4);
  refuse_unfinished(file);
  return headerless_layout(file);
}

}  // namespace spillway::data
