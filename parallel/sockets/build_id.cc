#include "parallel/sockets/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>

#include "base/types.h"

namespace spillway::parallel {
namespace {

constexpr size_t aligned(size_t bytes) { return (bytes + 3) / 4 * 4; }

// Returns the build ID if the notes of this segment contain one, and otherwise an empty text.
std::string find_build(const char* note, size_t left) {
  while (left >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) header;
    std::memcpy(&header, note, sizeof header);
    const size_t whole = sizeof header + aligned(header.n_namesz) + aligned(header.n_descsz);
    if (whole > left) return "";
    const char *name = note + sizeof header, *text = name + aligned(header.n_namesz);
    if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      std::string digits;
      for (size_t i = 0; i < header.n_descsz; ++i) digits += fmt::format("{:02x}", static_cast<u8>(text[i]));
      return digits;
    }
    note += whole, left -= whole;
  }
  return "";
}

// The address of this variable lies in the object that contains this code: the program, or the library that a program or Python has
// loaded.
const char kHere = 0;

bool holds_this(const dl_phdr_info& object) {
  const auto here = reinterpret_cast<ElfW(Addr)>(&kHere);
  for (int k = 0; k < object.dlpi_phnum; ++k) {
    const auto& segment = object.dlpi_phdr[k];
    const ElfW(Addr) begin = object.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && begin <= here && here < begin + segment.p_memsz) return true;
  }
  return false;
}

int look_at(dl_phdr_info* object, size_t, void* to) {
  if (!holds_this(*object)) return 0;
  for (int k = 0; k < object->dlpi_phnum; ++k) {
    const auto& segment = object->dlpi_phdr[k];
    if (segment.p_type != PT_NOTE) continue;
    const std::string found = find_build(reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr), segment.p_memsz);
    if (!found.empty()) *static_cast<std::string*>(to) = found;
  }
  return 1;
}

}  // namespace

std::string build_id() {
  std::string id;
  dl_iterate_phdr(look_at, &id);
  return id;
}

}  // namespace spillway::parallel
