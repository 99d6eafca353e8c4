#include "parallel/sockets/secret.h"

#include <sodium.h>

#include "base/error.h"

namespace spillway::parallel {
namespace {

constexpr size_t kRandomBytes = 16;

void make_ready() {
  static const bool ready = sodium_init() >= 0;
  require(ready, "[rendezvous] expected libsodium to be initialized, got a failure of sodium_init");
}

std::string hex(const unsigned char* bytes, size_t count) {
  std::string text(2 * count + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), bytes, count);
  text.pop_back();
  return text;
}

const unsigned char* bytes_of(const std::string& text) { return reinterpret_cast<const unsigned char*>(text.data()); }

}  // namespace

std::string random_bits() {
  make_ready();
  unsigned char bits[kRandomBytes];
  randombytes_buf(bits, sizeof bits);
  return hex(bits, sizeof bits);
}

bool are_random_bits(const std::string& text) {
  return text.size() == 2 * kRandomBytes && text.find_first_not_of("0123456789abcdef") == text.npos;
}

Secret::Secret(const std::string& token) : key_(crypto_auth_KEYBYTES, '\0') {
  make_ready();
  crypto_generichash(reinterpret_cast<unsigned char*>(key_.data()), key_.size(), bytes_of(token), token.size(), nullptr, 0);
}

// Each word is preceded by its length, so that two different lists of words never give the same text.
std::string Secret::proof_of(const std::vector<std::string>& words) const {
  std::string text;
  for (const std::string& word : words) text += std::to_string(word.size()) + ":" + word;
  unsigned char mac[crypto_auth_BYTES];
  crypto_auth(mac, bytes_of(text), text.size(), bytes_of(key_));
  return hex(mac, sizeof mac);
}

bool Secret::proves(const std::string& proof, const std::vector<std::string>& words) const {
  const std::string expected = proof_of(words);
  return proof.size() == expected.size() && sodium_memcmp(proof.data(), expected.data(), expected.size()) == 0;
}

}  // namespace spillway::parallel
