// Defines the frame format of a link (socket_link.h): a header of 32 bytes, followed by as many bytes as the header says. Plain values. The
// binary layout may differ between builds and kinds of machine; this is no problem, since all ranks of a run use the same build.
#pragma once
#include "base/types.h"
#include "parallel/comm/wire.h"

namespace spillway::parallel {

struct SocketFrame {
  enum class Kind : u16 {
    letter,
    ready,     // the receiver has a buffer of `bytes` for the next send with this channel and tag; it identifies the buffer by `ticket`
    data,      // the next bytes for the receiver's buffer `ticket`
    farewell,  // the last frame that its sender sends, except for answers; the receiver answers with goodbye
    goodbye,   // the answer to a farewell
  };
  static constexpr u32 kMagic = 0x53'50'57'59;

  u32 magic = kMagic;
  Kind kind = Kind::letter;
  u16 channel = 0;
  i64 bytes = 0;
  u64 ticket = 0;
  i32 tag = 0;
  u32 check = 0;  // checksum of the other fields

  u32 expected_check() const {
    u64 mixed = magic;
    for (const u64 field :
         {static_cast<u64>(kind) << 16 | channel, static_cast<u64>(bytes), ticket, static_cast<u64>(static_cast<u32>(tag))})
      mixed = (mixed ^ field) * 0x9e3779b97f4a7c15u, mixed ^= mixed >> 29;
    return static_cast<u32>(mixed);
  }
  bool is_whole() const { return magic == kMagic && check == expected_check() && bytes >= 0; }
};
static_assert(sizeof(SocketFrame) == 32);

}  // namespace spillway::parallel
