#include "troika/schedule/catalogue/vee_search.h"

// Recipes to start from. The patterns of the papers: v-half goes two slots per lane on the way down and one
// on the way up, v-min one each, with a wait at the upper turn where passes would collide; zb-v alternates
// forwards and input parts (rounds). The others were chosen from a few thousand combinations, each because it
// makes the mean of some 360 settings (1 to 12 lanes, up to 4 micro-batches per lane, seven sets of times)
// better than those before it: that is their order.

namespace troika::vee {
namespace {

constexpr int kAll = 4'000;  // looks ahead at whatever is ready

std::vector<Recipe> zero_bubble() {
  const Recipe steep = {.hop = {12, 12, 8, 4}, .period = 12, .look_ahead = kAll};
  const Recipe even = {.hop = {8, 8, 8, 8}, .period = 16, .look_ahead = kAll};
  const Recipe late = {.hop = {4, 8, 8, 8}, .period = 16, .look_ahead = 48};
  std::vector<Recipe> recipes;
  const auto add = [&](Recipe recipe, auto set) {
    set(recipe);
    recipes.push_back(recipe);
  };
  add(steep, [](Recipe& r) { r.source = Source::even_run, r.balanced = true, r.late_look_ahead = 12; });
  add(steep, [](Recipe& r) { r.source = Source::even_run, r.late_by_weight = 4, r.late_look_ahead = 12; });
  add(even, [](Recipe& r) { r.overlap = 6; });
  const Recipe rounds = {.source = Source::rounds, .reserve = 0};
  add(rounds, [](Recipe& r) { r.late_by_weight = 4, r.balanced = true, r.before_forward = false; });
  for (const bool forward : {true, false}) {
    for (const bool down : {true, false}) {
      add(rounds, [&](Recipe& r) {
        r.before_forward = forward, r.before_input_down = down, r.balanced = true, r.rebalanced = true;
      });
      add(rounds,
          [&](Recipe& r) { r.before_forward = forward, r.before_input_down = down, r.balanced = true; });
    }
  }
  add(rounds, [](Recipe&) {});
  add(steep, [](Recipe& r) { r.balanced = true; });
  add(even, [](Recipe& r) {
    r.source = Source::forwards_run, r.look_ahead = 48, r.late_by_weight = 4, r.late_look_ahead = 12;
  });
  add({.look_ahead = kAll, .overlap = 6, .balanced = true}, [](Recipe&) {});
  add(late, [](Recipe& r) { r.late_by_weight = 4, r.overlap = 6, r.balanced = true; });
  add(even, [](Recipe& r) { r.look_ahead = 48, r.late_by_weight = 4, r.overlap = 6, r.balanced = true; });
  add(late, [](Recipe& r) { r.late_by_weight = 8, r.overlap = 6; });
  return recipes;
}

// As the papers do it, and with weight parts where the gaps are by the given times.
void add_squeezed(Recipe recipe, std::vector<Recipe>& recipes) {
  recipe.source = Source::squeezed;
  recipe.keep_weights = true;
  recipes.push_back(recipe);
  recipe.late_by_weight = 4;
  recipes.push_back(recipe);
  recipe.keep_weights = false;
  recipes.push_back(recipe);
  recipe.late_look_ahead = 12;
  recipes.push_back(recipe);
}

std::vector<Recipe> half(int lanes) {
  const Recipe paper = {
      .hop = {8, 4, 8, 4}, .turn = {4, lanes % 2 == 0 ? 16 : 4, 8}, .reserve = 0, .look_ahead = 48};
  const Recipe fast = {.hop = {4, 8, 4, 8}, .period = 16, .reserve = 0, .look_ahead = 12, .overlap = 6};
  std::vector<Recipe> recipes;
  const auto add = [&](Recipe recipe, auto set) {
    set(recipe);
    recipes.push_back(recipe);
  };
  const auto timetable = [&](auto set) {
    add(paper, [&](Recipe& r) {
      r.source = Source::timetable;
      set(r);
    });
  };
  add_squeezed(paper, recipes);
  timetable([](Recipe& r) { r.weight_lag = 0, r.late_look_ahead = 12; });
  timetable([](Recipe& r) { r.look_ahead = kAll, r.keep_weights = true, r.balanced = true; });
  add(fast, [](Recipe& r) {
    r.source = Source::even_run, r.look_ahead = 48, r.overlap = 0, r.weight_lag = 0, r.balanced = true;
  });
  timetable([](Recipe& r) { r.keep_weights = true; });
  add({.hop = {8, 8, 8, 4},
       .reserve = 0,
       .look_ahead = 12,
       .overlap = 6,
       .late_by_weight = 4,
       .balanced = true},
      [](Recipe&) {});
  add(fast, [](Recipe&) {});
  timetable([](Recipe& r) { r.look_ahead = kAll, r.late_look_ahead = 12; });
  timetable([](Recipe& r) { r.weight_lag = 0, r.late_by_weight = 8; });
  add(fast, [](Recipe& r) { r.late_by_weight = 4; });
  add(fast,
      [](Recipe& r) { r.source = Source::even_run, r.look_ahead = 48, r.overlap = 0, r.weight_lag = 0; });
  add(paper, [](Recipe& r) { r.late_by_weight = 4, r.overlap = 6; });
  timetable([](Recipe& r) { r.late_look_ahead = 12; });
  add({.hop = {4, 8, 4, 8}, .look_ahead = 48, .overlap = 6}, [](Recipe&) {});
  timetable([](Recipe& r) { r.look_ahead = 0, r.late_by_weight = 8; });
  return recipes;
}

std::vector<Recipe> least(int lanes) {
  const Recipe paper = {.turn = {4, lanes % 3 == 0 ? 12 : 4, 4}, .reserve = 0, .look_ahead = 48};
  const Recipe plain = {.reserve = 1, .look_ahead = 48};
  const Recipe wide = {.hop = {4, 4, 8, 4}, .reserve = 0, .look_ahead = 48};
  const Recipe late = {.hop = {4, 4, 4, 8}, .reserve = 0, .look_ahead = 48, .overlap = 6};
  const Recipe quick = {.hop = {5, 2, 6, 4}, .period = 20, .reserve = 0, .look_ahead = 48};
  std::vector<Recipe> recipes;
  const auto add = [&](Recipe recipe, auto set) {
    set(recipe);
    recipes.push_back(recipe);
  };
  const auto even_run = [](Recipe& r) { r.source = Source::even_run, r.late_look_ahead = 12; };
  add_squeezed(paper, recipes);
  add(paper, [&](Recipe& r) { even_run(r), r.weight_lag = 0; });
  add(wide, [](Recipe& r) { r.overlap = 6; });
  add(plain, [&](Recipe& r) { even_run(r), r.weight_lag = 0, r.balanced = true; });
  add(late, [](Recipe& r) { r.late_by_weight = 4; });
  add(quick, [](Recipe& r) { r.late_by_weight = 4; });
  add(paper,
      [&](Recipe& r) { even_run(r), r.source = Source::timetable, r.weight_lag = 0, r.late_by_weight = 4; });
  add(wide, [](Recipe& r) { r.weight_lag = 0; });
  add(quick, [](Recipe& r) { r.look_ahead = 12; });
  add(plain, [&](Recipe& r) { even_run(r); });
  add(plain, [&](Recipe& r) { even_run(r), r.look_ahead = kAll, r.weight_lag = 0, r.late_by_weight = 4; });
  add(wide, [](Recipe&) {});
  add(plain, [](Recipe& r) { r.late_by_weight = 4, r.overlap = 6, r.balanced = true; });
  add(quick, [](Recipe& r) { r.overlap = 6, r.balanced = true; });
  add(late, [](Recipe& r) { r.look_ahead = 12; });
  add(paper, [](Recipe&) {});
  add(plain, [](Recipe& r) { r.reserve = 0, r.look_ahead = 12, r.overlap = 6; });
  add(paper, [](Recipe& r) { r.look_ahead = 0; });
  return recipes;
}

}  // namespace

std::vector<Recipe> first_recipes(VeeKind kind, int lanes) {
  switch (kind) {
    case VeeKind::zero_bubble:
      return zero_bubble();
    case VeeKind::half:
      return half(lanes);
    case VeeKind::least:
      return least(lanes);
  }
  return {};
}

}  // namespace troika::vee
