//! Through UNUserNotificationCenter. It aborts a program that is not in an app bundle, so that nothing is asked of it
//! before the bundle's path is known to end in `.app`.
#![expect(unsafe_code, reason = "a delegate is a class of Objective-C, and its methods are called by the system")]

use super::{Click, Refusal};
use crate::face::notice::Notice;
use block2::{DynBlock, RcBlock};
use objc2::rc::Retained;
use objc2::runtime::{Bool, NSObject, NSObjectProtocol, ProtocolObject};
use objc2::{AnyThread, DefinedClass, define_class, msg_send};
use objc2_foundation::{NSArray, NSBundle, NSError, NSSet, NSString};
use objc2_user_notifications::{
    UNAuthorizationOptions, UNMutableNotificationContent, UNNotification, UNNotificationAction,
    UNNotificationActionOptions, UNNotificationCategory, UNNotificationCategoryOptions,
    UNNotificationPresentationOptions, UNNotificationRequest, UNNotificationResponse, UNUserNotificationCenter,
    UNUserNotificationCenterDelegate,
};
use stablehand_protocol::face::Ask;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tokio::sync::oneshot;

/// The action of a notification's button.
const DEED_ACTION: &str = "deed";

/// What the buttons of posted notifications do, by kind. A click that starts this program anew finds none, and opens
/// the popover.
static DEEDS: Mutex<BTreeMap<String, Ask>> = Mutex::new(BTreeMap::new());

/// Asks the person, once; later calls give the present answer.
///
/// # Errors
/// A [`Refusal`] with the system's reason.
pub async fn allow() -> Result<(), Refusal> {
    let (answered, answer) = oneshot::channel();
    {
        let center = center()?;
        let answered = Mutex::new(Some(answered));
        let block = RcBlock::new(move |granted: Bool, error: *mut NSError| {
            let outcome = if granted.as_bool() { Ok(()) } else { Err(Refusal::Refused(described(error))) };
            if let Some(answered) = answered.lock().ok().and_then(|mut sender| sender.take()) {
                let _ = answered.send(outcome);
            }
        });
        let options = UNAuthorizationOptions::Alert | UNAuthorizationOptions::Sound;
        center.requestAuthorizationWithOptions_completionHandler(options, &block);
    }
    answer.await.unwrap_or_else(|_| Err(Refusal::Refused("macOS gave no answer".to_owned())))
}

/// Calls back when a notification or its button is clicked. On the main thread, before the app has finished launching:
/// the click that starts the app is told right after.
pub fn on_click(clicked: impl Fn(Click) + Send + Sync + 'static) {
    let Ok(center) = center() else { return };
    let delegate = Delegate::new(Box::new(clicked));
    center.setDelegate(Some(ProtocolObject::from_ref(&*delegate)));
    // The center holds it weakly, and it is needed as long as the program runs.
    std::mem::forget(delegate);
}

/// Posts it. Calls back when that does not work.
pub fn post(kind: &str, notice: &Notice, refused: impl FnOnce(Refusal) + Send + 'static) {
    let center = match center() {
        Ok(center) => center,
        Err(refusal) => return refused(refusal),
    };
    let content = UNMutableNotificationContent::new();
    content.setTitle(&NSString::from_str(&notice.summary));
    content.setBody(&NSString::from_str(&notice.body));
    let mut deeds = DEEDS.lock().unwrap_or_else(PoisonError::into_inner);
    match &notice.deed {
        Some(deed) => {
            offer(&center, &content, kind, &deed.text);
            deeds.insert(kind.to_owned(), deed.ask.clone());
        }
        None => {
            deeds.remove(kind);
        }
    }
    drop(deeds);
    // The kind names it, so that a newer one of a kind takes the place of the older one.
    let request =
        UNNotificationRequest::requestWithIdentifier_content_trigger(&NSString::from_str(kind), &content, None);
    let refused = Mutex::new(Some(refused));
    let block = RcBlock::new(move |error: *mut NSError| {
        if error.is_null() {
            return;
        }
        if let Some(refused) = refused.lock().ok().and_then(|mut callback| callback.take()) {
            refused(Refusal::Refused(described(error)));
        }
    });
    center.addNotificationRequest_withCompletionHandler(&request, Some(&block));
}

/// Gives it a button. The system knows buttons by categories, which are set all at once; one kind alone has one.
fn offer(center: &UNUserNotificationCenter, content: &UNMutableNotificationContent, kind: &str, text: &str) {
    let category = NSString::from_str(kind);
    let action = UNNotificationAction::actionWithIdentifier_title_options(
        &NSString::from_str(DEED_ACTION),
        &NSString::from_str(text),
        UNNotificationActionOptions::Foreground,
    );
    let category_with_it = UNNotificationCategory::categoryWithIdentifier_actions_intentIdentifiers_options(
        &category,
        &NSArray::from_retained_slice(&[action]),
        &NSArray::new(),
        UNNotificationCategoryOptions::empty(),
    );
    center.setNotificationCategories(&NSSet::from_retained_slice(&[category_with_it]));
    content.setCategoryIdentifier(&category);
}

fn center() -> Result<Retained<UNUserNotificationCenter>, Refusal> {
    let path = NSBundle::mainBundle().bundlePath().to_string();
    if path.ends_with(".app") {
        Ok(UNUserNotificationCenter::currentNotificationCenter())
    } else {
        Err(Refusal::OutsideBundle)
    }
}

fn described(error: *mut NSError) -> String {
    // SAFETY: the system hands over a valid error or null, and it lives as long as the handler runs.
    match unsafe { error.as_ref() } {
        Some(error) => error.localizedDescription().to_string(),
        None => "it is not allowed in System Settings".to_owned(),
    }
}

struct Clicked {
    clicked: Box<dyn Fn(Click) + Send + Sync>,
}

define_class!(
    // SAFETY: NSObject asks nothing of its subclasses, and this one has no Drop of its own.
    #[unsafe(super(NSObject))]
    #[ivars = Clicked]
    struct Delegate;

    // SAFETY: NSObjectProtocol asks nothing.
    unsafe impl NSObjectProtocol for Delegate {}

    // SAFETY: both methods have the signatures of the protocol, and call their handlers once.
    unsafe impl UNUserNotificationCenterDelegate for Delegate {
        // Without it nothing is shown while the popover has the focus.
        #[unsafe(method(userNotificationCenter:willPresentNotification:withCompletionHandler:))]
        fn will_present(
            &self,
            _center: &UNUserNotificationCenter,
            _notification: &UNNotification,
            handler: &DynBlock<dyn Fn(UNNotificationPresentationOptions)>,
        ) {
            handler.call((UNNotificationPresentationOptions::Banner | UNNotificationPresentationOptions::List,));
        }

        #[unsafe(method(userNotificationCenter:didReceiveNotificationResponse:withCompletionHandler:))]
        fn did_receive(
            &self,
            _center: &UNUserNotificationCenter,
            response: &UNNotificationResponse,
            handler: &DynBlock<dyn Fn()>,
        ) {
            let kind = response.notification().request().identifier().to_string();
            let wanted = response.actionIdentifier().to_string() == DEED_ACTION;
            let deed = DEEDS.lock().unwrap_or_else(PoisonError::into_inner).get(&kind).filter(|_| wanted).cloned();
            (self.ivars().clicked)(Click { kind, deed });
            handler.call(());
        }
    }
);

impl Delegate {
    fn new(clicked: Box<dyn Fn(Click) + Send + Sync>) -> Retained<Self> {
        let this = Self::alloc().set_ivars(Clicked { clicked });
        // SAFETY: it is NSObject's plain initialiser.
        unsafe { msg_send![super(this), init] }
    }
}
