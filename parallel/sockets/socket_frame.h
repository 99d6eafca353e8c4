// What passes over a link (socket_link.h): a header of 32 bytes, then as many bytes as it says. Values; the layout is that of one build on
// one kind of machine, as ranks of one run are.
#pragma once
#include "base/types.h"
#include "parallel/comm/wire.h"

namespace spillway::parallel {

struct SocketFrame {
  enum class Kind : u16 {
    letter,
    ready,     // the receiver has a buffer of `bytes` for the next of this channel and tag, which it calls `ticket`
    data,      // the next bytes of the receiver's `ticket`
    farewell,  // the sender's last but an answer; to be answered
    goodbye,   // the answer
  };
  static constexpr u32 kMagic = 0x53'50'57'59;

  u32 magic = kMagic;
  Kind kind = Kind::letter;
  u16 channel = 0;
  i64 bytes = 0;
  u64 ticket = 0;
  i32 tag = 0;
  u32 check = 0;  // of the rest

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
