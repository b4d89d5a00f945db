//! A thread's vector registers while the runtime runs. Some are in the processor, some in the
//! context block.

use crate::thread::Thread;
use hindsight_isa::xsave::{Area, Layout};
use hindsight_isa::{Ctx, VecState};

/// What is needed to get at the guest's vector registers. Only the thread itself uses `area`. The
/// rest never changes, so other threads may read it.
pub struct Vectors {
    /// Room for the registers (see [`Thread::area`]).
    area: Area,
    /// Translated code uses zmm31 and k7 for itself. The guest's are in the context block.
    is_wide: bool,
    /// Where the state's components lie in an XSAVE area of this processor.
    layout: Layout,
}

impl Vectors {
    /// `is_wide`: translated code uses zmm31 and k7 for itself.
    pub(super) fn new(layout: Layout, is_wide: bool) -> Vectors {
        Vectors {
            area: Area::default(),
            is_wide,
            layout,
        }
    }

    /// Where the state's components lie in an XSAVE area of this processor.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether translated code uses zmm31 and k7 for itself. Then the guest's are in the context
    /// block.
    pub fn is_wide(&self) -> bool {
        self.is_wide
    }

    /// The layout, if the guest's zmm31 and k7 are in the context block.
    pub fn wide(&self) -> Option<&Layout> {
        self.is_wide.then_some(&self.layout)
    }
}

impl Thread {
    /// The guest's complete vector state, in the processor's own format. The x87 instruction and
    /// data pointers are zero, since they would be those of translated code.
    pub fn area(&mut self) -> &mut Area {
        let v = &mut self.vectors;
        let wide = v.is_wide.then_some(&v.layout);
        save(&mut v.area, self.ctx, wide);
        &mut v.area
    }

    /// Writes what [`Thread::area`] returns to `area`.
    pub fn save_area(&self, area: &mut Area) {
        save(area, self.ctx, self.vectors.wide());
    }

    /// Loads the guest's vector state from `a`, an area that XSAVE or `Layout` made.
    pub fn set_area(&mut self, a: &Area) {
        if let Some(layout) = self.vectors.wide() {
            (self.ctx.zmm31, self.ctx.k7) = layout.wide(a);
        }
        for (i, x) in self.ctx.xmm.iter_mut().enumerate() {
            if a.0[512] & 2 != 0 {
                x.copy_from_slice(&a.0[160 + 16 * i..176 + 16 * i]);
            } else {
                *x = [0; 16];
            }
        }
        // SAFETY: the runtime runs, not translated code.
        unsafe { hindsight_glue::load_area(a) };
    }

    /// The guest's vector state.
    pub fn vec(&mut self) -> VecState {
        let l = self.vectors.layout;
        l.to_state(self.area())
    }
}

/// Saves the guest's vector state. With `wide` zmm31 and k7 come from the context block.
fn save(area: &mut Area, ctx: &Ctx, wide: Option<&Layout>) {
    hindsight_glue::save_area(area);
    complete(area, ctx, wide);
}

/// Completes an area that holds what is in the processor with what is in the context block.
pub fn complete(area: &mut Area, ctx: &Ctx, wide: Option<&Layout>) {
    let a = &mut area.0;
    for (i, x) in ctx.xmm.iter().enumerate() {
        a[160 + 16 * i..176 + 16 * i].copy_from_slice(x);
    }
    a[512] |= 2;
    a[6..24].fill(0);
    if let Some(layout) = wide {
        layout.set_wide(area, &ctx.zmm31, ctx.k7);
    }
}
