// The squeeze of a repeated pattern (Qi et al., 2024, arXiv:2405.15362): a pattern keeps all lanes at work in
// the middle but leaves gaps while the lanes fill and drain; there passes move to earlier gaps as long as no
// lane holds more than the pattern does. All passes take one slot. Pure; thread-safe.
#pragma once

#include <optional>

#include "troika/schedule/catalogue/vee_run.h"

namespace troika::vee {

/// Slots of the first micro-batch's forwards and input parts, per lane; later ones follow every six slots.
using PatternSlots = std::vector<std::array<int, kChain>>;

/// The slots of all passes as ranks; none if two passes of the pattern meet in a slot.
std::optional<Ranks> squeezed(const Shape& shape, const PatternSlots& pattern);

}  // namespace troika::vee
