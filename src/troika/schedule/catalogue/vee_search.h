// The search that makes zb-v, v-half and v-min: recipes known to be good, then changes of the best one, then
// changes of single passes. Deterministic: it is limited in passes carried out, never in seconds. Pure;
// thread-safe.
#pragma once

#include <vector>

#include "troika/schedule/catalogue/vee_recipe.h"

namespace troika::vee {

enum class VeeKind { zero_bubble, half, least };

/// Chunks of activations a lane of this kind may hold.
int most_held(VeeKind kind, int lanes);

/// Where the search starts; vee_starts.cc says where they are from.
std::vector<Recipe> first_recipes(VeeKind kind, int lanes);

Schedule make_vee(VeeKind kind, const ScheduleRequest& request);

}  // namespace troika::vee
